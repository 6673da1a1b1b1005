"""Pairs of devices, whatever they are: what is read, what is predicted of it, and drift compensation."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from quietnn.channels.conductance import Draws, Memory
from quietnn.channels.memories import PCM, ReRAM
from quietnn.channels.moments import ErrorMoments, weight_points


@dataclass(frozen=True)
class Fading(Memory):
    """Cells without noise that keep a share of what was written and never fall below a floor."""

    share: float
    floor: float = 0.0
    compensate: bool = False

    def write(self, target: Tensor, draws: Draws) -> Tensor:
        return target + self.floor

    def read(self, target: Tensor, written: Tensor, draws: Draws) -> Tensor:
        return self.share * written

    def moments(self, target: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.share * (target + self.floor)
        return mean, mean.square()


@pytest.mark.parametrize("compensate", [False, True])
def test_a_device_that_keeps_a_share_has_that_gain_and_no_noise(compensate: bool, shapes: dict[str, Tensor]) -> None:
    """The floor is on both devices of a pair and cancels."""
    observation = Fading(0.25, floor=0.1, compensate=compensate).transmit(shapes, seed=0)
    assert isinstance(observation.gain, dict)
    assert isinstance(observation.noise_variance, dict)
    for name, tensor in shapes.items():
        assert torch.allclose(observation.received[name], (1.0 if compensate else 0.25) * tensor, atol=1e-6)
        assert observation.gain[name] == pytest.approx(1.0 if compensate else 0.25, rel=1e-6)
        assert observation.noise_variance[name] == pytest.approx(0.0, abs=1e-12)
    assert Fading(0.25).shared_noise(shapes["gaussian"]) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("device", [PCM(3600.0), ReRAM(1.0)], ids=str)
def test_a_few_quantiles_of_the_weights_predict_it_too(device: PCM | ReRAM, shapes: dict[str, Tensor]) -> None:
    for name, tensor in shapes.items():
        measured = ErrorMoments.of(tensor, device.store(tensor, seed=2, name=name)[0])
        points = weight_points(tensor)
        law = device.conditional(points, float(tensor.abs().max()))
        predicted = ErrorMoments.predicted(points, law)
        assert predicted.noise_variance == pytest.approx(measured.noise_variance, rel=0.05)


def test_the_noise_of_a_tensor_does_not_depend_on_its_company(shapes: dict[str, Tensor]) -> None:
    alone = PCM(60.0).transmit({"gaussian": shapes["gaussian"]}, seed=4).received["gaussian"]
    assert torch.equal(PCM(60.0).transmit(shapes, seed=4).received["gaussian"], alone)
    assert not torch.equal(PCM(60.0).transmit(shapes, seed=5).received["gaussian"], alone)


def test_zeros_stay_and_types_too() -> None:
    weights = {"zeros": torch.zeros(4), "half": torch.randn(10).half()}
    for device in (PCM(3600.0), ReRAM()):
        observation = device.transmit(weights, seed=0)
        assert torch.equal(observation.received["zeros"], weights["zeros"])
        assert observation.received["half"].dtype == torch.float16
