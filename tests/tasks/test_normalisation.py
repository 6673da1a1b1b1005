"""The input normalisation is read from the weights' metadata."""

import pytest
import torch

from quietnn.errors import InvalidWeights
from quietnn.tasks.normalisation import CIFAR10, RAW, parse_normalisation


def test_raw_images_lie_between_zero_and_one() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
    assert RAW(images).flatten().tolist() == pytest.approx([0.0, 0.2, 1.0])
    assert images.dtype == torch.uint8


def test_mean_and_std_are_per_channel() -> None:
    normalisation = parse_normalisation("0.0,0.5,1.0/1.0,0.5,0.25")
    images = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
    assert normalisation(images).flatten().tolist() == [1.0, 1.0, 0.0]


def test_text_round_trips() -> None:
    assert parse_normalisation(str(CIFAR10)) == CIFAR10


@pytest.mark.parametrize("text", ["", "0.5", "1,2,3", "1,2,3/1,2", "1,2,3/1,0,1", "a,b,c/1,1,1", "1,2,3/1,1,1/4"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidWeights, match="input_normalisation"):
        parse_normalisation(text)
