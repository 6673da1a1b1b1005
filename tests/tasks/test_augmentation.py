"""Crops and flips move whole images, nothing else."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from quietnn.tasks.augmentation import random_crop_flip, shrink


@given(st.integers(0, 3), st.integers(0, 100), st.booleans())
def test_each_image_is_a_shift_or_a_mirrored_shift_of_itself(padding: int, seed: int, flips: bool) -> None:
    images = torch.randint(1, 255, (5, 3, 6, 6), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(seed)
    for before, after in zip(
        images, random_crop_flip(images, padding=padding, flips=flips, generator=generator), strict=True
    ):
        padded = functional.pad(before, (padding,) * 4)
        shifts = range(2 * padding + 1)
        crops = [padded[:, top : top + 6, left : left + 6] for top in shifts for left in shifts]
        candidates = crops + ([crop.flip(2) for crop in crops] if flips else [])
        assert any(torch.equal(after, candidate) for candidate in candidates)


def test_about_half_of_the_images_are_mirrored_and_all_shifts_occur() -> None:
    images = torch.zeros(2000, 1, 3, 3, dtype=torch.uint8)
    images[:, :, 1, 0] = 1
    mirrored = random_crop_flip(images, padding=0, generator=torch.Generator().manual_seed(0))[:, 0, 1, 2].float()
    assert abs(float(mirrored.mean()) - 0.5) < 0.05
    shifted = random_crop_flip(images, padding=1, flips=False, generator=torch.Generator().manual_seed(0))
    rows = {int(row) for row in shifted.sum(dim=3)[:, 0].argmax(dim=1)}
    assert rows == {0, 1, 2}


def test_shrinking_keeps_a_constant_image_and_the_full_size() -> None:
    images = torch.full((2, 3, 32, 32), 0.7)
    torch.testing.assert_close(shrink(images, 24), torch.full((2, 3, 24, 24), 0.7))
    assert shrink(images, 32) is images
