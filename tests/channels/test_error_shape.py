"""Errors beside a Gaussian."""

import pytest
import torch

from quietnn.channels.error_shape import NUM_BINS, PROBABILITIES, ErrorShape
from quietnn.errors import QuietnnError


def test_gaussian_and_uniform_errors_are_told_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    normal = ErrorShape.of(0.3 + 2 * torch.randn(200_000, generator=generator))
    uniform = ErrorShape.of(torch.rand(200_000, generator=generator))
    assert normal.variance == pytest.approx(4.0, rel=0.02)
    assert abs(normal.excess_kurtosis) < 0.05
    assert normal.distance < 0.005
    assert uniform.excess_kurtosis == pytest.approx(-1.2, abs=0.02)
    assert uniform.distance == pytest.approx(0.0572, abs=0.003)
    middle = PROBABILITIES.index(0.99)
    assert normal.quantiles[middle] == pytest.approx(2.326, abs=0.05)
    assert uniform.quantiles[middle] == pytest.approx(0.49 * 12**0.5, abs=0.02)
    assert (len(normal.histogram), sum(normal.histogram)) == (NUM_BINS, pytest.approx(1.0))


def test_no_error_has_no_shape() -> None:
    with pytest.raises(QuietnnError, match="no shape"):
        ErrorShape.of(torch.zeros(5))
