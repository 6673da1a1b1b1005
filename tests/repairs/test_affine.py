"""The four published denoisers as one affine map, and the arithmetic that applies it."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.repairs.affine import (
    ML,
    MMSE,
    AffineDenoiser,
    Temperatures,
    denoiser_for,
    ml,
    mmse,
    mmse_p,
    mmse_pb,
    temperatures_of,
)

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SameBits = Callable[[Tensor, Tensor], bool]

priors = st.builds(WeightStatistics, st.floats(-5, 5), st.floats(0.01, 50), st.just(10))
noises = st.floats(0.01, 50)
coefficients = st.floats(-4, 4)


def every_bit_pattern_of_note(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    special = [0.0, -0.0, info.tiny, -info.tiny, info.smallest_normal / 2, info.max, info.min, info.eps, 1.0, -1.5]
    return torch.tensor(special, dtype=torch.float64).to(dtype)


class TestMembers:
    @given(priors, noises, st.floats(-3, 3))
    def test_special_temperatures(self, prior: WeightStatistics, noise_variance: float, beta: float) -> None:
        assert ml(prior, noise_variance) == AffineDenoiser(1.0, 0.0)
        assert mmse_p(prior, noise_variance, lambda_prime=1.0) == ml(prior, noise_variance)
        assert mmse_pb(prior, noise_variance, lambda_prime=1.0, beta=0.0) == ml(prior, noise_variance)
        assert mmse_p(prior, noise_variance, lambda_prime=0.0) == mmse(prior, noise_variance)
        assert mmse_pb(prior, noise_variance, lambda_prime=0.5, beta=0.0) == mmse_p(
            prior, noise_variance, lambda_prime=0.5
        )
        assert denoiser_for(Temperatures(0.0, beta), prior, noise_variance) == mmse_pb(
            prior, noise_variance, lambda_prime=0.0, beta=beta
        )

    def test_what_each_method_leaves_free(self) -> None:
        assert temperatures_of("ml", None, None) == ML
        assert temperatures_of("mmse", None, None) == MMSE
        assert temperatures_of("mmse_p", 0.9, None) == Temperatures(0.9, 0.0)
        assert temperatures_of("mmse_pb", 0.9, -2.0) == Temperatures(0.9, -2.0)
        assert temperatures_of("mmse_pb", 0.0, 0.0) == MMSE
        with pytest.raises(InvalidConfig, match="there is no method 'map'; choose one of ml, mmse, mmse_p, mmse_pb"):
            temperatures_of("map", None, None)

    @pytest.mark.parametrize(
        ("method", "lambda_prime", "beta", "message"),
        [
            ("ml", 0.5, None, "ml takes no lambda_prime, but got 0.5; leave it out"),
            ("mmse", None, 0.5, "mmse takes no beta, but got 0.5; leave it out"),
            ("mmse_p", 0.5, 0.5, "mmse_p takes no beta, but got 0.5"),
            ("mmse_p", None, None, "mmse_p needs lambda_prime; give a value, or find one"),
            ("mmse_pb", 0.5, None, "mmse_pb needs beta; give a value, or find one"),
        ],
    )
    def test_temperatures_that_do_not_fit_the_method(
        self, method: str, lambda_prime: float | None, beta: float | None, message: str
    ) -> None:
        with pytest.raises(InvalidConfig, match=message):
            temperatures_of(method, lambda_prime, beta)

    def test_the_pole(self) -> None:
        prior = WeightStatistics(0.0, 0.1, 10)
        with pytest.raises(InfeasibleTemperatures, match=r"lambda' = 1.33333 is outside"):
            mmse_p(prior, 0.3, lambda_prime=1 + 0.1 / 0.3)

    @pytest.mark.parametrize("variance", [-1.0, math.nan])
    def test_a_prior_without_a_variance(self, variance: float) -> None:
        with pytest.raises(QuietnnError, match=f"weight_variance is {variance}; a variance must be finite"):
            mmse(WeightStatistics(0.0, variance, 10), 1.0)

    def test_mmse_is_not_worse_than_ml_in_simulation(self) -> None:
        """Expected squared errors 0.6 and 1.5 for sigma_w^2 = 1, sigma_z^2 = 1.5, mu_w = 2."""
        draw = np.random.default_rng(0)
        weights = torch.from_numpy(draw.normal(2.0, 1.0, 200_000))
        received = weights + torch.from_numpy(draw.normal(0.0, 1.5**0.5, 200_000))
        prior = WeightStatistics.from_clean([weights])
        errors = [(denoiser(prior, 1.5)(received) - weights).square().mean().item() for denoiser in (ml, mmse)]
        assert errors == pytest.approx([1.5, 0.6], rel=0.02)


class TestArithmetic:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_the_identity_returns_every_bit(self, dtype: torch.dtype, same_bits: SameBits) -> None:
        received = every_bit_pattern_of_note(dtype)
        assert same_bits(ml(WeightStatistics(1.0, 1.0, 9), 1.0)(received), received)
        assert same_bits(mmse(WeightStatistics(1.0, 1.0, 9), 0.0)(received), received)
        in_place = received.clone()
        assert AffineDenoiser(1.0, 0.0)(in_place, out=in_place) is in_place
        assert same_bits(in_place, received)

    @pytest.mark.parametrize("dtype", DTYPES)
    @given(seed=st.integers(0, 10**6), theta=coefficients, rho=coefficients)
    def test_accuracy_is_that_of_the_dtype(self, dtype: torch.dtype, seed: int, theta: float, rho: float) -> None:
        received = torch.from_numpy(np.random.default_rng(seed).normal(0, 2, 100)).to(dtype)
        exact = theta * received.double() + rho
        size = (theta * received.double()).abs() + abs(rho)
        error = (AffineDenoiser(theta, rho)(received).double() - exact).abs()
        info = torch.finfo(dtype)
        assert (error <= size * info.eps * 1.01 + info.tiny).all()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_no_signal_gives_the_mean_exactly(self, dtype: torch.dtype) -> None:
        received = torch.tensor([-3.0, 0.0, 7.0], dtype=dtype)
        mean = WeightStatistics(0.3, 0.0, 3)
        for denoiser in (
            mmse(mean, 2.0),
            mmse_p(mean, 2.0, lambda_prime=0.7),
            mmse_pb(mean, 2.0, lambda_prime=0.1, beta=4.0),
        ):
            assert torch.equal(denoiser(received), torch.full_like(received, 0.3))

    @pytest.mark.parametrize("dtype", DTYPES)
    @given(seed=st.integers(0, 10**6), theta=coefficients, rho=coefficients, cut=st.integers(0, 999))
    def test_permuting_reshaping_slicing_and_aliasing_commute_with_denoising(
        self, dtype: torch.dtype, seed: int, theta: float, rho: float, cut: int
    ) -> None:
        draw = np.random.default_rng(seed)
        received = torch.from_numpy(draw.normal(0, 1, 1000)).to(dtype)
        denoiser = AffineDenoiser(theta, rho)
        expected = denoiser(received)
        order = torch.from_numpy(draw.permutation(1000))
        assert torch.equal(denoiser(received[order]), expected[order])
        assert torch.equal(denoiser(received.view(8, 125)).view(-1), expected)
        assert torch.equal(denoiser(received.view(8, 125).t()), expected.view(8, 125).t())
        assert torch.equal(denoiser(received[cut:]), expected[cut:])
        assert torch.equal(denoiser(received[:cut]), expected[:cut])
        assert torch.equal(denoiser(received[::7]), expected[::7])
        assert torch.equal(denoiser(received, out=torch.empty(1000, dtype=dtype)), expected)
        strided = torch.empty(2000, dtype=dtype)[::2]
        assert torch.equal(denoiser(received, out=strided), expected)
        assert torch.equal(denoiser(received, out=received), expected)

    def test_no_gradient_is_recorded(self) -> None:
        assert not AffineDenoiser(0.5, 0.5)(torch.ones(2, requires_grad=True)).requires_grad

    def test_long_16_bit_tensors_are_computed_chunk_by_chunk(self) -> None:
        received = torch.randn((1 << 20) + 3, generator=torch.Generator().manual_seed(0)).bfloat16()
        expected = AffineDenoiser(0.7, 0.1)(received.float()).bfloat16()
        assert torch.equal(AffineDenoiser(0.7, 0.1)(received), expected)
        assert torch.equal(AffineDenoiser(0.7, 0.1)(received[1::2]), expected[1::2])
