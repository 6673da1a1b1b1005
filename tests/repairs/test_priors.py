"""Priors of tensors that share a group: alike ones are pooled, different ones stay apart."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.noise import mean_noise
from quietnn.random_effects import shrunk
from quietnn.repairs.denoise import denoise
from quietnn.repairs.priors import pooled, priors_under, shared_priors, told


def alike(size: int, spread: float, *, seed: int, noise: float) -> tuple[dict[str, Tensor], ...]:
    """Standard normal weights in tensors of one size, what is received of them, and noise that differs by tensor."""
    generator = torch.Generator().manual_seed(seed)
    names = [f"l{index}.weight" for index in range(max(2000 // size, 10))]
    clean = {name: torch.randn(size // 2, 2, generator=generator) for name in names}
    variances = {name: noise * torch.exp(spread * torch.randn((), generator=generator)) for name in names}
    received = {
        name: own + variances[name].sqrt() * torch.randn(own.shape, generator=generator) for name, own in clean.items()
    }
    return clean, received, variances


@pytest.mark.parametrize("noise", [1.0, 4.0])
@pytest.mark.parametrize("spread", [1e-6, 0.1, 0.5])
@pytest.mark.parametrize("size", [4, 16, 64, 256, 1024])
def test_small_tensors_that_are_alike_lose_nothing_by_having_noise_of_their_own(
    size: int, spread: float, noise: float
) -> None:
    errors = [0.0, 0.0]
    for seed in range(4):
        clean, received, variances = alike(size, spread, seed=seed, noise=noise)
        for place, told_noise in enumerate((variances, mean_noise(variances, clean))):
            estimate = denoise(received, noise_variance=told_noise).model
            errors[place] += sum(float((estimate[name] - own).square().sum()) for name, own in clean.items())
    assert errors[0] <= errors[1] * 1.01


def test_tensors_that_clearly_differ_keep_their_own() -> None:
    found = {"small": (0.0, 1e-4, 5000), "large": (0.3, 1.0, 5000), "bias": (0.1, 0.01, 500)}
    priors = shared_priors(found, {"small": 1e-4, "large": 1.0, "bias": 1e-3})
    for name, (mean, variance, count) in found.items():
        assert priors[name].mean == pytest.approx(mean, abs=0.01)
        assert priors[name].variance == pytest.approx(variance, rel=0.01)
        assert priors[name].num_weights == count


def test_tensors_that_cannot_be_told_apart_share_one_prior() -> None:
    found = {"a": (0.1, 0.8, 10), "b": (-0.1, 1.3, 10), "c": (0.0, 1.0, 10_000)}
    priors = shared_priors(found, {"a": 1.0, "b": 1.1, "c": 0.9})
    group = pooled(list(found.values()))
    for own in priors.values():
        assert own.variance == pytest.approx(group.variance, rel=1e-3)
        assert own.mean == pytest.approx(group.mean, abs=1e-3)


def test_a_tensor_lost_in_noise_takes_the_prior_of_the_others() -> None:
    generator = torch.Generator().manual_seed(0)
    clean = {name: 0.1 * torch.randn(2000, generator=generator) for name in "abcdef"}
    noise = dict.fromkeys(clean, torch.full((2000,), 1e-3)) | {"f": torch.full((2000,), 1e4)}
    found = {
        name: told(own + noise[name].sqrt() * torch.randn(2000, generator=generator), noise[name])
        for name, own in clean.items()
    }
    assert abs(found["f"][1]) > 1
    prior = priors_under(found, noise, {"whole": tuple(clean)})[1]["f"]
    assert prior.variance == pytest.approx(0.01, rel=0.1)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-0.5, 2.0), st.integers(1, 10_000)), min_size=2, max_size=6),
    st.floats(1e-120, 1e120),
)
def test_priors_follow_the_scale_of_the_weights(rows: list[tuple[float, float, int]], scale: float) -> None:
    noise = {str(place): 0.5 + 0.1 * place for place in range(len(rows))}
    found = dict(zip(noise, rows, strict=True))
    scaled = {name: (mean * scale, variance * scale**2, count) for name, (mean, variance, count) in found.items()}
    ours = shared_priors(found, noise)
    theirs = shared_priors(scaled, {name: own * scale**2 for name, own in noise.items()})
    for name, own in ours.items():
        assert math.isfinite(own.mean)
        assert own.variance >= 0
        assert theirs[name].mean == pytest.approx(own.mean * scale, rel=1e-6, abs=1e-6 * scale)
        assert theirs[name].variance == pytest.approx(own.variance * scale**2, rel=1e-6, abs=1e-6 * scale**2)


def test_per_weight_noise_that_is_the_same_everywhere_tells_as_much_as_one_number() -> None:
    found = {"a": (0.1, 0.8, 10), "b": (-0.1, 3.0, 1000)}
    one = shared_priors(found, {"a": 1.0, "b": 1.1})
    each = shared_priors(found, {"a": torch.full((10,), 1.0), "b": torch.full((1000,), 1.1, dtype=torch.float64)})
    for name, own in one.items():
        assert each[name].variance == pytest.approx(own.variance, rel=1e-9)


def test_nothing_noisy_and_nothing_spread() -> None:
    constant = {"a": (1.0, 0.0, 3), "b": (2.0, 0.0, 3)}
    priors = shared_priors(constant, dict.fromkeys(constant, 0.0)).values()
    assert [own.mean for own in priors] == pytest.approx([1.0, 2.0])
    assert [own.variance for own in priors] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert shrunk([5.0, 5.0], errors=[0.0, 1.0]) == pytest.approx([5.0, 5.0])
