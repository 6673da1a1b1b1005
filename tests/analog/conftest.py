"""Small networks on analog hardware."""

from typing import Any

import pytest
import torch
from tests.repairs.blobs import blobs, norm_net
from torch import Tensor, nn


@pytest.fixture(scope="session")
def network() -> nn.Module:
    """Two linear layers with a BatchNorm between them, which know three classes."""
    return norm_net()


@pytest.fixture(scope="session")
def examples() -> tuple[Tensor, Tensor]:
    """Inputs and labels of the three classes."""
    return blobs(90)


def images() -> nn.Module:
    """A convolution with its BatchNorm, and a head."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4)
    ).eval()


def analog(
    model: nn.Module, *, compensated: bool = True, seconds: float | None = None, writing: float = 1.0, **mapping: Any
) -> Any:
    """A network of aihwkit with an exact forward pass, on tiles of a limited size; programmed and drifted if asked."""
    from aihwkit.inference.compensation.drift import GlobalDriftCompensation
    from aihwkit.inference.noise.pcm import PCMLikeNoiseModel
    from aihwkit.nn.conversion import convert_to_analog
    from aihwkit.simulator.configs import TorchInferenceRPUConfig

    config = TorchInferenceRPUConfig()
    config.forward.is_perfect = True
    config.drift_compensation = GlobalDriftCompensation() if compensated else None
    config.noise_model = PCMLikeNoiseModel(prog_noise_scale=writing)
    config.mapping.weight_scaling_omega = 1.0
    for name, value in mapping.items():
        setattr(config.mapping, name, value)
    chip = convert_to_analog(model, config).eval()
    if seconds is not None:
        torch.manual_seed(5)
        chip.program_analog_weights()
        chip.drift_analog_weights(seconds)
    return chip
