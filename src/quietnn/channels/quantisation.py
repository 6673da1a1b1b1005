"""Weights stored in fewer bits: as small integers, or with a shorter mantissa.

*Uniform quantisation*, with or without subtractive dither:

    r = step * clamp(round(w / step), -m, m)        m = 2^(bits - 1) - 1

The grid is symmetric about zero, as in usual weight quantisation: at 2 bits it is {-1, 0, 1}. With subtractive dither,
`r = Q(w + u) - u`, the error is uniform and uncorrelated with the weights at any step (docs/reference/channels.md).

*A shorter mantissa*, as in formats of 16 bits and fewer: of the 23 bits of a float32 the first few are kept. The rest
is cut (towards zero, which shrinks every weight) or rounded to the nearest with ties to even (which does not).
Exponents keep their 8 bits.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quietnn.channels.base import Arrived, ByTensor
from quietnn.channels.moments import Conditional, ErrorMoments, pooled, weight_points
from quietnn.channels.randomness import uniform
from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.noise import TensorNoise

CLIPS = ("max", "mse")
ROUNDINGS = ("truncate", "nearest")

_MANTISSA = 23
_NUM_DITHERS = 32
_NUM_CLIPS = 40
_FEWEST_POINTS, _MOST_POINTS = 2_001, 400_001
"""Of an integral over weights. Of millions a few beyond the range can make a tenth of a fine grid's error."""


@dataclass(frozen=True)
class Quantisation(ByTensor):
    """Uniform quantisation of every tensor to a few bits a weight.

    Attributes:
        num_bits: from 2 to 16.
        per_channel: a step for each output channel (first dimension) of tensors with two dimensions or more.
        dither: subtractive dither; the receiver draws the same `u` from the seed.
        clip: the largest level is the largest weight (`"max"`), or is chosen for the least squared error (`"mse"`).

    >>> Quantisation(num_bits=3).transmit({"w": torch.tensor([-3.0, 0.4, 0.6])}, seed=0).received["w"]
    tensor([-3.,  0.,  1.])
    """

    num_bits: int
    per_channel: bool = False
    dither: bool = False
    clip: str = "max"

    def __post_init__(self) -> None:
        """Refuse what is no quantiser."""
        if self.num_bits not in range(2, 17):
            raise InvalidConfig(f"num_bits is {self.num_bits}; quantise to 2 to 16 bits a weight")
        if self.clip not in CLIPS:
            raise unknown_choice("clip", self.clip, CLIPS)

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        """Whether the error is that of rounding: with dither it is noise."""
        return not self.dither

    def send(self, tensor: Tensor, *, seed: int, name: str) -> Arrived:
        """The quantised weights, with gain, offset and noise variance."""
        step = self.steps(tensor)
        received = self.quantise(tensor, step, seed=seed, name=name)
        # What one dither does is random, so it is predicted; those of many channels even out.
        predicted = self.dither and step.ndim == 0
        moments = self.predict(tensor) if predicted else ErrorMoments.of(tensor, received)
        # Dither has no offset within the range, which is exact where nothing is clipped.
        offset = 0.0 if self.dither and self.clip == "max" else moments.offset
        return received, (self._noise(moments, tensor, received, step), moments.gain, offset)

    def steps(self, tensor: Tensor) -> Tensor:
        """The step of a tensor, or of each of its channels, in a shape that broadcasts to it."""
        rows = self._rows(tensor.detach())
        largest = rows.abs().amax(dim=1, keepdim=True)
        step = largest / self._largest if self.clip == "max" else self._best_steps(rows, largest)
        return step.view(-1, *(1,) * (tensor.ndim - 1)) if len(step) > 1 else step.view(())

    def quantise(self, tensor: Tensor, step: Tensor, *, seed: int = 0, name: str = "") -> Tensor:
        """The nearest level of each weight; a tensor of zeros stays."""
        values = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
        if not self.dither:
            return self._level(values, step).to(tensor.dtype)
        shift = uniform(values.numel(), seed=seed, name=f"{name}:dither").view(values.shape).to(values)
        shift = (shift - 0.5) * step
        return (self._level(values + shift, step) - shift).to(tensor.dtype)

    def conditional(self, values: Tensor, step: Tensor) -> Conditional:
        """`E[r | w]` and `Var(r | w)` at some values of `w`, over the dither if there is any."""
        if not self.dither:
            return self._level(values, step), torch.zeros_like(values)
        total, squares = torch.zeros_like(values), torch.zeros_like(values)
        for place in range(_NUM_DITHERS):
            shift = ((place + 0.5) / _NUM_DITHERS - 0.5) * step
            error = self._level(values + shift, step) - shift - values
            total += error
            squares += error.square()
        mean = total / _NUM_DITHERS
        return values + mean, squares / _NUM_DITHERS - mean.square()

    def predict(self, tensor: Tensor) -> ErrorMoments:
        """Gain and noise to be expected of a tensor, integrated over quantiles of what shares a step, then pooled."""
        rows = self._rows(tensor.detach())
        found = []
        for row, step in zip(rows, self.steps(tensor).double().flatten(), strict=True):
            points = weight_points(row, num_points=min(max(_FEWEST_POINTS, row.numel()), _MOST_POINTS))
            own = ErrorMoments.predicted(points, self.conditional(points, step))
            found.append(replace(own, num_weights=row.numel()))
        return pooled(found)

    def shared_noise(self, tensor: Tensor) -> TensorNoise:
        """The part of the noise variance that no dither changes: `E[r | w]` less its line, at unit gain."""
        step = self.steps(tensor)
        mean, _ = self.conditional(tensor.detach().to(step.dtype), step)
        return self._noise(ErrorMoments.of(tensor, mean), tensor, mean, step)

    @property
    def _largest(self) -> int:
        return int(2 ** (self.num_bits - 1)) - 1

    def _level(self, values: Tensor, step: Tensor) -> Tensor:
        safe = torch.where(step > 0, step, torch.ones_like(step))
        return torch.where(step > 0, (values / safe).round_().clamp_(-self._largest, self._largest) * safe, values)

    def _rows(self, tensor: Tensor) -> Tensor:
        """What shares a step, as rows: the channels of a matrix or kernel, else all weights."""
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        return wide.reshape(len(tensor), -1) if self.per_channel and tensor.ndim > 1 else wide.reshape(1, -1)

    def _best_steps(self, rows: Tensor, largest: Tensor) -> Tensor:
        """The step of least squared error for each row, among fractions of the one that reaches the largest weight."""
        best, least = largest / self._largest, torch.full_like(largest, torch.inf)
        for part in range(1, _NUM_CLIPS + 1):
            step = largest * (part / _NUM_CLIPS) / self._largest
            error = (self._level(rows, step) - rows).square().mean(dim=1, keepdim=True)
            best, least = torch.where(error < least, step, best), torch.minimum(error, least)
        return best

    def _noise(self, moments: ErrorMoments, tensor: Tensor, received: Tensor, step: Tensor) -> TensorNoise:
        """The variance of what gain and offset do not explain, by channel where steps are."""
        if step.ndim == 0:
            return moments.noise_variance
        clean, arrived = self._rows(tensor).double(), self._rows(received).double()
        rest = arrived - moments.received_mean - moments.gain * (clean - moments.weight_mean)
        return (rest.square().mean(dim=1) / moments.gain**2).view(step.shape)


@dataclass(frozen=True)
class MantissaTruncation(ByTensor):
    """Keeps some bits of every weight's mantissa.

    Attributes:
        num_bits: of the mantissa that stay, 0 to 22; 7 with `"nearest"` is bfloat16.
        rounding: `"truncate"` or `"nearest"`.

    >>> MantissaTruncation(num_bits=1).transmit({"w": torch.tensor([1.0, 1.4, 1.6, -1.9])}, seed=0).received["w"]
    tensor([ 1.0000,  1.0000,  1.5000, -1.5000])
    """

    num_bits: int
    rounding: str = "truncate"

    rounds = True

    def __post_init__(self) -> None:
        """Refuse what float32 has not."""
        if self.num_bits not in range(_MANTISSA):
            raise InvalidConfig(f"num_bits is {self.num_bits}; keep 0 to {_MANTISSA - 1} bits of the mantissa")
        if self.rounding not in ROUNDINGS:
            raise unknown_choice("rounding", self.rounding, ROUNDINGS)

    def send(self, tensor: Tensor, *, seed: int, name: str) -> Arrived:
        """The shortened weights, with gain and noise variance; the seed changes nothing."""
        received = self.shorten(tensor).to(tensor.dtype)
        return received, ErrorMoments.of(tensor, received).told

    def shorten(self, values: Tensor) -> Tensor:
        """The values with the rest of their mantissa gone, in float32."""
        bits = values.detach().float().contiguous().view(torch.int32)
        dropped = _MANTISSA - self.num_bits
        if self.rounding == "nearest":
            odd = (bits >> dropped) & 1
            bits = bits + odd + (1 << (dropped - 1)) - 1
        return (bits & ~((1 << dropped) - 1)).view(torch.float32)
