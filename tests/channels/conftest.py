"""Weights of several shapes of distribution, as the tests of channels want them."""

import pytest
import torch
from torch import Tensor


@pytest.fixture(scope="session")
def shapes() -> dict[str, Tensor]:
    """Convolution-like tensors: Gaussian, Laplace, uniform, and one scale for each channel."""
    generator = torch.Generator().manual_seed(0)
    size = (64, 32, 3, 3)
    half = torch.rand(size, generator=generator) - 0.5
    scale = 0.02 + 0.1 * torch.rand(64, 1, 1, 1, generator=generator)
    return {
        "gaussian": 0.05 * torch.randn(size, generator=generator),
        "laplace": -0.03 * half.sign() * torch.log1p(-2 * half.abs().clamp(max=0.4999)),
        "uniform": 0.2 * (torch.rand(size, generator=generator) - 0.5),
        "channels": scale * torch.randn(size, generator=generator),
    }
