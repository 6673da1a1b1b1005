"""How prediction and sample are weighed."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.repairs.batchnorm.weighing import Gap, Prediction, posterior
from quietnn.watching.moments import ChannelMoments

EPSILON = 1e-5


def full(value: float, channels: int = 32) -> Tensor:
    return torch.full((channels,), value, dtype=torch.float64)


def prediction(*, shift: float = 0.0, growth: float = 0.0, upstream: float = 0.0, traced: bool = True) -> Prediction:
    return Prediction(full(1.0), full(2.0), full(shift), full(growth), 0.1, upstream, traced)


def sample(*, mean: float = 0.0, variance: float = 2.0, error: float = 0.01, spread: float = 0.1) -> ChannelMoments:
    noise = torch.randn(2, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * spread
    return ChannelMoments(1.0 + mean + noise[0], variance * noise[1].exp(), full(error), full(error), error)


@given(st.floats(-5, 5), st.floats(0, 10), st.floats(0, 1))
def test_without_noise_the_clean_statistics_come_back_exactly(mean: float, variance: float, error: float) -> None:
    for traced in (True, False):
        result = posterior(
            prediction(traced=traced), sample(mean=mean, variance=variance, error=error), None, epsilon=EPSILON
        )
        assert torch.equal(result.mean, full(1.0))
        assert torch.equal(result.variance, full(2.0))
        assert (result.mean_weight, result.variance_weight, result.common_weight) == (0, 0, 0)


def test_much_noise_and_many_images_make_it_plain_re_estimation() -> None:
    seen = sample(mean=0.5, variance=9.0, error=1e-9, spread=2.0)
    result = posterior(prediction(shift=4.0, growth=8.0, upstream=0.9), seen, Gap(), epsilon=EPSILON)
    torch.testing.assert_close(result.mean, seen.mean, rtol=0, atol=1e-6)
    assert float((result.variance / seen.variance).log().abs().max()) < 1e-3


def test_few_images_and_little_noise_leave_it_as_predicted() -> None:
    result = posterior(prediction(shift=1e-6, growth=0.1), sample(error=10.0), Gap(), epsilon=EPSILON)
    torch.testing.assert_close(result.mean, full(1.0), rtol=0, atol=1e-6)
    torch.testing.assert_close(result.variance, full(2.1), rtol=0.02, atol=0)


def test_what_the_first_layer_shows_beyond_its_noise_is_a_gap_and_not_followed() -> None:
    seen = sample(mean=0.8, variance=1.0)
    first = posterior(prediction(shift=1e-3, growth=0.01), seen, None, epsilon=EPSILON)
    assert first.gap.mean == pytest.approx(0.8**2 / 2, rel=0.1)
    assert first.gap.common == pytest.approx(math.log(2) ** 2, rel=0.2)
    torch.testing.assert_close(first.mean, full(1.0), rtol=0, atol=0.01)
    later = prediction(shift=1e-3, growth=0.01, upstream=0.3)
    trusting = posterior(later, seen, Gap(), epsilon=EPSILON)
    wary = posterior(later, seen, first.gap, epsilon=EPSILON)
    assert wary.mean_weight < 0.01 < 0.8 < trusting.mean_weight
    assert wary.common_weight < 0.1 < 0.3 < trusting.common_weight


def test_noise_upstream_explains_no_more_than_its_share() -> None:
    seen = sample(mean=1.0, error=1e-6)
    little = posterior(prediction(upstream=0.01), seen, Gap(), epsilon=EPSILON)
    much = posterior(prediction(upstream=0.6), seen, Gap(), epsilon=EPSILON)
    assert little.mean_weight > 0.99  # nothing else is in doubt
    doubtful = replace(seen, mean_error=full(0.1))
    assert posterior(prediction(upstream=0.01), doubtful, Gap(), epsilon=EPSILON).mean_weight < 0.2
    assert posterior(prediction(upstream=0.6), doubtful, Gap(), epsilon=EPSILON).mean_weight > 0.75
    assert much.mean_weight > 0.99


def test_dead_channels_are_weighed_with_epsilon_and_stay_finite() -> None:
    dead = Prediction(full(0.0), full(0.0), full(1e-8), full(1e-9), 0.5, 0.1)
    seen = ChannelMoments(full(0.0), full(0.0), full(0.0), full(0.0), 0.0)
    result = posterior(dead, seen, Gap(), epsilon=EPSILON)
    assert bool(torch.isfinite(result.mean).all() and torch.isfinite(result.variance).all())
    assert float(result.variance.min()) >= 0


def test_an_unknown_layer_follows_what_the_sample_shows_beyond_its_error() -> None:
    unknown = prediction(upstream=0.2, traced=False)
    seen = sample(mean=2.0, variance=6.0, error=1e-4)
    result = posterior(unknown, seen, Gap(), epsilon=EPSILON)
    assert result.mean_weight > 0.99
    assert result.common_weight > 0.99
    quiet = posterior(unknown, sample(error=1.0, spread=0.01), Gap(), epsilon=EPSILON)
    assert (quiet.mean_weight, quiet.common_weight) == (0, 0)
