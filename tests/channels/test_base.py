"""What channels share: settling, and settings that are refused with their limits."""

import math

import pytest
import torch

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import check_link_db, check_number, check_whole, is_by_tensor, settle
from quietnn.channels.memories import PCM
from quietnn.errors import InvalidConfig, QuietnnError


def test_a_channel_settles_what_it_must_know_of_all_tensors() -> None:
    weights = {"w": torch.tensor([1.0, -1.0])}
    assert not is_by_tensor(AWGN(wnr_db=0.0))
    assert settle(AWGN(wnr_db=0.0), weights) == AWGN(noise_variance=1.0)
    assert is_by_tensor(settle(AWGN(wnr_db=0.0), weights))
    assert settle(PCM(1.0), weights) == PCM(1.0)


@pytest.mark.parametrize("value", [-1, 11, math.nan, math.inf, "3", None])
def test_numbers_outside_their_limits(value: object) -> None:
    with pytest.raises(InvalidConfig, match=r"drift is .*; give 0 to 10 in all"):
        check_number("drift", value, 0, 10, note=" in all")
    with pytest.raises(InvalidConfig, match=r"block is .*; give a whole number, 0 to 10"):
        check_whole("block", value, 0, 10)


def test_numbers_within_their_limits() -> None:
    check_number("drift", 2.5, 0, 10)
    check_whole("block", 10, 0, 10)
    with pytest.raises(InvalidConfig, match="whole number"):
        check_whole("block", 2.5, 0, 10)


@pytest.mark.parametrize("value", ["10", -100.1, math.nan, -math.inf])
def test_ratios_that_no_link_has(value: object) -> None:
    with pytest.raises(QuietnnError):
        check_link_db(value)
    check_link_db(-100.0)
