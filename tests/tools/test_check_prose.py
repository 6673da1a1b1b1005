"""The checker finds what is too long, and the repository has none of it."""

import pytest

from tools import check_prose

LONG = "Word" + " word" * 40 + "."
SHORT = "Word" + " word" * 39 + "."


def test_a_sentence_of_forty_words_passes_and_one_more_does_not() -> None:
    assert list(check_prose.in_document(SHORT)) == []
    assert list(check_prose.in_document(f"# Title\n\n{SHORT} {LONG}\n")) == [
        "3: a sentence has 41 words: Word word word word word word word word ..."
    ]


@pytest.mark.parametrize(
    "text", [f"```text\n{LONG}\n```\n", f"| {LONG[:100]} |\n", f"<!-- {LONG} -->\n", f"# {LONG}\n"]
)
def test_code_tables_comments_and_headings_are_no_sentences(text: str) -> None:
    assert list(check_prose.in_document(text)) == []


def test_list_items_are_sentences_of_their_own() -> None:
    half = " ".join(["word"] * 30)
    assert list(check_prose.in_document(f"- {half}\n- {half}\n")) == []
    assert len(list(check_prose.in_document(f"- {half}\n  {half}\n"))) == 1


def test_sections_of_a_docstring_count_and_formulas_do_not() -> None:
    assert list(check_prose.in_docstring(f"Short.\n\n    {LONG}\n\nEnd.\n")) == []
    assert len(list(check_prose.in_docstring(f"Short.\n\nArgs:\n    name: {LONG}\n"))) == 1


def test_a_cell_that_is_too_long_is_found() -> None:
    (problem,) = check_prose.in_document("# A\n\n| a | b |\n|---|---|\n| " + 121 * "x" + " | y |")
    assert problem.startswith("5: a table cell has 121 characters: xxx")


def test_a_link_in_a_cell_counts_as_its_words() -> None:
    assert list(check_prose.in_document(f"| [a]({'x' * 200}) |\n")) == []


@pytest.mark.parametrize(
    "path", check_prose.documents(), ids=lambda path: path.relative_to(check_prose.ROOT).as_posix()
)
def test_no_page_has_a_sentence_or_a_cell_that_is_too_long(path: check_prose.Path) -> None:
    assert list(check_prose.in_document(path.read_text(encoding="utf-8"))) == []


def test_no_public_docstring_has_a_sentence_that_is_too_long() -> None:
    found = [
        f"{name}: {problem}"
        for name, text in check_prose.public_docstrings()
        for problem in check_prose.in_docstring(text)
    ]
    assert found == []
