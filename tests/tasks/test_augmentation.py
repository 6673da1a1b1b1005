"""Crops and flips move whole images, nothing else; noise on weights has its power, and gradients pass through."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from quietnn.tasks.augmentation import clip_weights, noisy_logits, random_crop_flip, shrink


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


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(200, 300, bias=False), nn.LayerNorm(300))


def test_the_noise_has_the_power_of_the_wnr_and_spares_normalisation() -> None:
    model, inputs = network(), torch.eye(200)
    model[1].weight.data.fill_(1.0)
    weight = model[0].weight
    linear = nn.Sequential(model[0])
    noise = (noisy_logits(linear, inputs, wnr_db=3.0) - linear(inputs)).detach()
    measured = float(noise.var()) / float(weight.detach().var())
    assert abs(measured / 10**-0.3 - 1.0) < 0.02
    with torch.no_grad():
        model[0].weight.zero_()
    assert torch.equal(noisy_logits(model, inputs, wnr_db=3.0), model(inputs)), "no power, no noise; LayerNorm has none"


def test_without_noise_it_is_the_plain_forward_pass_and_gradients_flow() -> None:
    model, inputs = network(), torch.randn(4, 200)
    assert torch.equal(noisy_logits(model, inputs, wnr_db=float("inf")), model(inputs))
    noisy_logits(model, inputs, wnr_db=0.0).square().sum().backward()
    gradient = model[0].weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


def test_the_clean_weights_are_not_moved_by_the_noise() -> None:
    model = network()
    before = model[0].weight.detach().clone()
    noisy_logits(model, torch.randn(2, 200), wnr_db=-10.0)
    assert torch.equal(model[0].weight, before)


def test_noise_by_share_goes_with_the_largest_weight_of_each_tensor() -> None:
    inputs = torch.eye(200)
    for factor in (1.0, 5.0):
        linear = nn.Sequential(network()[0])
        linear[0].weight.data[0, 0] = factor
        noise = (noisy_logits(linear, inputs, share=0.1) - linear(inputs)).detach()
        assert abs(float(noise.std()) / (0.1 * factor) - 1.0) < 0.02


def test_weights_are_clipped_at_a_number_of_standard_deviations_and_normalisation_is_not() -> None:
    model = network()
    model[0].weight.data.normal_()
    model[1].weight.data[0] = 100.0
    limit = 2.0 * float(model[0].weight.detach().std())
    clip_weights(model, 2.0)
    assert float(model[0].weight.detach().abs().max()) <= limit
    assert float(model[1].weight.detach()[0]) == 100.0
