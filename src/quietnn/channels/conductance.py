"""Weights as differences of conductances, whatever the device: `w = (g+ - g-) / s`.

The device on the weight's side carries `|w|`, the other is left at zero and has an error of its own. `s` maps the
largest weight of a tensor to the largest conductance, so here conductances are relative to it: `x = |w| / max |w|`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from quietnn.channels.moments import Conditional, ErrorMoments
from quietnn.channels.randomness import check_seed, standard_normal
from quietnn.noise import NoiseVariance, TensorNoise
from quietnn.observation import Observation
from quietnn.weights import Weights, check_weights

LARGEST_FACTOR = 1e3
"""By which a measured law may be scaled."""

_NUM_KNOTS = 513


@dataclass(frozen=True)
class Draws:
    """The randomness of one side of one tensor: nothing but a seed and a name."""

    seed: int
    name: str

    def normal(self, draw: str, like: Tensor) -> Tensor:
        """Standard normal values of the draw with a name, in the shape of a tensor."""
        drawn = standard_normal(like.numel(), seed=self.seed, name=f"{self.name}:{draw}")
        return drawn.view(like.shape).to(like)


class Device(Protocol):
    """A kind of memory cell; conductances are relative to the largest."""

    def write(self, target: Tensor, draws: Draws) -> Tensor:
        """The conductances just after writing."""
        ...

    def read(self, target: Tensor, written: Tensor, draws: Draws) -> Tensor:
        """The conductances when they are read."""
        ...

    def moments(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and second moment of what is read, for each target."""
        ...


@dataclass(frozen=True)
class Cells:
    """A tensor in memory: what was read of it, and what could be read just after writing."""

    read: Tensor
    written: Tensor


def transmit_through(
    device: Device, weights: Weights, *, seed: int, compensate: bool
) -> Observation[dict[str, Tensor], NoiseVariance]:
    """Write every tensor into pairs of devices and read it again.

    Args:
        device: of which kind.
        weights: the tensors, each on an array of its own.
        seed: of all randomness, which depends on seed and tensor name alone.
        compensate: global drift compensation (Joshi et al. 2020): multiply each tensor by one factor that restores the
            sum of absolute weights to that just after writing.
    """
    check_weights(weights)
    check_seed(seed)
    received: dict[str, Tensor] = {}
    noise: dict[str, TensorNoise] = {}
    gain: dict[str, float] = {}
    offset: dict[str, float] = {}
    for name, tensor in weights.items():
        cells = store(device, tensor, seed=seed, name=name)
        factor = drift_factor(cells) if compensate else 1.0
        moments = predict(device, tensor)
        received[name] = (cells.read * factor).to(tensor.dtype)
        noise[name], gain[name] = moments.noise_variance, moments.gain * factor
        offset[name] = moments.offset * factor
    return Observation(received, noise, gain, offset, rounded=False)


def store(device: Device, tensor: Tensor, *, seed: int, name: str) -> Cells:
    """One tensor written into devices and read once."""
    values = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
    scale = values.abs().max()
    if scale == 0:
        return Cells(values.clone(), values.clone())
    read, written = torch.zeros_like(values), torch.zeros_like(values)
    for side, sign in (("plus", 1.0), ("minus", -1.0)):
        target = (sign * values / scale).clamp(min=0.0)
        draws = Draws(seed, f"{name}:{side}")
        conductance = device.write(target, draws)
        written.add_(conductance, alpha=sign)
        read.add_(device.read(target, conductance, draws), alpha=sign)
    return Cells(read * scale, written * scale)


def drift_factor(cells: Cells) -> float:
    """What global drift compensation multiplies a tensor by."""
    now = float(cells.read.abs().double().sum())
    return float(cells.written.abs().double().sum()) / now if now else 1.0


def predict(device: Device, tensor: Tensor, values: Tensor | None = None) -> ErrorMoments:
    """Gain and noise of a tensor to be expected before compensation, integrated over its weights (or other values)."""
    values = tensor.detach() if values is None else values
    return ErrorMoments.predicted(values, conditional(device, values, float(tensor.detach().abs().max())))


def shared_noise(device: Device, tensor: Tensor) -> float:
    """The noise of a tensor that is the same whenever it is written: `E[r | w]` less its line, at unit gain."""
    values = tensor.detach()
    mean, _ = conditional(device, values, float(values.abs().max()))
    return ErrorMoments.of(values, mean).noise_variance


def conditional(device: Device, values: Tensor, scale: float) -> Conditional:
    """`E[r | w]` and `Var(r | w)`: the device on the weight's side, less the one left at zero."""
    if scale == 0:
        return values, torch.zeros_like(values)
    knots = torch.linspace(0, 1, _NUM_KNOTS, dtype=torch.float64).square()  # dense near zero, where laws bend
    first, second = device.moments(knots)
    variance = second - first.square()
    at = (values.double().abs() / scale).clamp(max=1.0).cpu().numpy()

    def read(law: Tensor) -> Tensor:
        return torch.as_tensor(np.interp(at, knots.numpy(), law.numpy()))

    mean = values.double().sign().cpu() * scale * (read(first) - float(first[0]))
    return mean, scale**2 * (read(variance) + float(variance[0]))
