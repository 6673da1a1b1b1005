"""Answers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn.records.right import packed, unpacked


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_answers_come_back(right: list[bool]) -> None:
    text = packed(right)
    assert unpacked(text, len(right)) == right
    assert len(text) == (len(right) + 3) // 4


@pytest.mark.parametrize("text", ["9", "988", "9x", "99", "-8", "+8", "٣٣", ""])
def test_text_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="5"):
        unpacked(text, 5)
