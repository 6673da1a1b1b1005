"""Shifted images are whole images, a little to the side; and what is no image is not taken for one."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from quietnn.variants import how_far, look_like_images, shifted


def smooth(*shape: int) -> torch.Tensor:
    noise = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return functional.avg_pool2d(noise, 5, stride=1, padding=2)


@given(st.integers(0, 100), st.sampled_from([(16, 16), (16, 40), (33, 17)]))
def test_each_image_is_one_shift_of_itself_with_its_edge_repeated(seed: int, sides: tuple[int, int]) -> None:
    images = torch.rand(3, 2, *sides, generator=torch.Generator().manual_seed(seed))
    down, right = (side // 8 for side in sides)
    padded = functional.pad(images, (right, right, down, down), mode="replicate")
    for before, after in zip(padded, shifted(images, torch.Generator().manual_seed(seed)), strict=True):
        crops = (
            before[:, top : top + sides[0], left : left + sides[1]]
            for top in range(2 * down + 1)
            for left in range(2 * right + 1)
        )
        assert any(torch.equal(after, crop) for crop in crops)


def test_all_shifts_occur_and_images_differ_in_theirs() -> None:
    place = torch.arange(16.0)[:, None] * 100 + torch.arange(16.0)
    moved = shifted(place.repeat(500, 1, 1, 1), torch.Generator().manual_seed(0))[:, 0, 8, 8] - 808
    assert sorted(moved.unique().tolist()) == sorted(
        100.0 * down + right for down in (-2, -1, 0, 1, 2) for right in (-2, -1, 0, 1, 2)
    )
    assert how_far(torch.zeros(1, 1, 16, 40)) == "images shifted by up to 5 pixels"


def test_images_are_told_from_what_is_none() -> None:
    images = smooth(4, 3, 32, 32)
    assert look_like_images(images)
    assert look_like_images(100 + 0.1 * images)
    assert not look_like_images(torch.ones(4, 3, 32, 32))
    assert not look_like_images(images[..., :8])
    assert not look_like_images(images.movedim(1, -1))
    assert not look_like_images((100 * images).int())
    assert not look_like_images({"pixel_values": images})
    assert not look_like_images(images[:, :, torch.randperm(32)])
