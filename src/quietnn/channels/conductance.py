"""Weights as differences of conductances, whatever the device: `w = (g+ - g-) / s`.

The device on the weight's side carries `|w|`, the other is left at zero and has an error of its own. `s` maps the
largest weight of a tensor to the largest conductance, so here conductances are relative to it: `x = |w| / max |w|`.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quietnn.channels.base import Arrived, ByTensor
from quietnn.channels.moments import Conditional, ErrorMoments
from quietnn.channels.randomness import standard_normal

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


class Memory(ByTensor):
    """A channel of memory cells. Its devices say what becomes of conductances, which are relative to the largest.

    Attributes:
        compensate: global drift compensation (Joshi et al. 2020): multiply each tensor by one factor that restores the
            sum of absolute weights to that just after writing.
        tile: inputs that share a tile, whose largest weight has the largest conductance; 0 puts all on one. What is
            told of several tiles is their mean gain, with each tile's own undone, and the noise of each.
    """

    compensate: bool
    tile: int = 0

    @abstractmethod
    def write(self, target: Tensor, draws: Draws) -> Tensor:
        """The conductances just after writing."""

    @abstractmethod
    def read(self, target: Tensor, written: Tensor, draws: Draws) -> Tensor:
        """The conductances when they are read."""

    @abstractmethod
    def moments(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and second moment of what is read, for each target."""

    def send(self, tensor: Tensor, *, seed: int, name: str) -> Arrived:
        """What is read of a tensor, with gain and noise as the model predicts them."""
        width = tensor[0].numel() if self.tile and tensor.dim() > 1 else 0
        if width <= self.tile:
            return self._on_one_tile(tensor, seed=seed, name=name)
        read, noise = self._on_tiles(tensor, seed=seed, name=name)
        return read, (noise, 1.0, 0.0)

    def _on_one_tile(self, tensor: Tensor, *, seed: int, name: str) -> tuple[Tensor, tuple[float, float, float]]:
        """What is read, and what is told of it: noise variance, gain and offset."""
        read, written = self.store(tensor, seed=seed, name=name)
        factor = _drift_factor(read, written) if self.compensate else 1.0
        moments = self.predict(tensor)
        told = moments.noise_variance, moments.gain * factor, moments.offset * factor
        return (read * factor).to(tensor.dtype), told

    def _on_tiles(self, tensor: Tensor, *, seed: int, name: str) -> tuple[Tensor, Tensor]:
        """What is read from several tiles, gain and offset of each undone, and the noise variance of every weight."""
        rows = tensor.detach().flatten(1).to(torch.promote_types(tensor.dtype, torch.float32))
        read, noise = torch.empty_like(rows), torch.empty_like(rows)
        for start in range(0, rows.shape[1], self.tile):
            part = slice(start, start + self.tile)
            arrived, (variance, gain, offset) = self._on_one_tile(rows[:, part], seed=seed, name=f"{name}:{start}")
            read[:, part] = (arrived - offset) / gain
            noise[:, part] = variance
        return read.view(tensor.shape).to(tensor.dtype), noise.view(tensor.shape)

    def store(self, tensor: Tensor, *, seed: int, name: str) -> tuple[Tensor, Tensor]:
        """What is read of a tensor in pairs of devices, and what could be read just after writing."""
        values = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
        scale = values.abs().max()
        if scale == 0:
            return values.clone(), values.clone()
        read, written = torch.zeros_like(values), torch.zeros_like(values)
        for side, sign in (("plus", 1.0), ("minus", -1.0)):
            target = (sign * values / scale).clamp(min=0.0)
            draws = Draws(seed, f"{name}:{side}")
            conductance = self.write(target, draws)
            written.add_(conductance, alpha=sign)
            read.add_(self.read(target, conductance, draws), alpha=sign)
        return read * scale, written * scale

    def predict(self, tensor: Tensor) -> ErrorMoments:
        """Gain and noise of a tensor to be expected before compensation, integrated over its weights."""
        values = tensor.detach()
        return ErrorMoments.predicted(values, self.conditional(values, float(values.abs().max())))

    def shared_noise(self, tensor: Tensor) -> float:
        """The noise of a tensor that is the same whenever it is written: `E[r | w]` less its line, at unit gain."""
        values = tensor.detach()
        mean, _ = self.conditional(values, float(values.abs().max()))
        return ErrorMoments.of(values, mean).noise_variance

    def conditional(self, values: Tensor, scale: float) -> Conditional:
        """`E[r | w]` and `Var(r | w)`: the device on the weight's side, less the one left at zero."""
        if scale == 0:
            return values, torch.zeros_like(values)
        knots = torch.linspace(0, 1, _NUM_KNOTS, dtype=torch.float64).square()  # dense near zero, where laws bend
        first, second = self.moments(knots)
        variance = second - first.square()
        at = (values.double().abs() / scale).clamp(max=1.0).cpu().numpy()

        def read(law: Tensor) -> Tensor:
            return torch.as_tensor(np.interp(at, knots.numpy(), law.numpy()))

        mean = values.double().sign().cpu() * scale * (read(first) - float(first[0]))
        return mean, scale**2 * (read(variance) + float(variance[0]))


def _drift_factor(read: Tensor, written: Tensor) -> float:
    """What global drift compensation multiplies a tensor by."""
    now = float(read.abs().double().sum())
    return float(written.abs().double().sum()) / now if now else 1.0
