"""Torch's threads are lent and given back."""

import pytest
import torch

from quietnn.threads import one_torch_thread


def test_the_setting_is_as_before_whatever_happens() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_torch_thread(), one_torch_thread():
            assert torch.get_num_threads() == 1
        with pytest.raises(ZeroDivisionError), one_torch_thread():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
