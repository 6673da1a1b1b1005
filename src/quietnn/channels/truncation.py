"""Weights whose mantissa is cut short, as in formats of 16 bits and fewer.

A float32 is `+-1.f 2^e` with 23 bits of `f`; here the first few are kept, by cutting (towards zero, which shrinks every
weight) or by rounding to the nearest with ties to even (which does not). The exponent keeps its 8 bits. The error is
relative: about uniform up to `2^-bits` of the weight's power of two, so large weights carry more of it.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from quietnn.channels.moments import ErrorMoments, weight_points
from quietnn.channels.randomness import check_seed
from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.noise import NoiseVariance, TensorNoise
from quietnn.observation import Observation
from quietnn.weights import Weights, check_weights

ROUNDINGS = ("truncate", "nearest")

_MANTISSA = 23


@dataclass(frozen=True)
class MantissaTruncation:
    """Keeps some bits of every weight's mantissa.

    Attributes:
        num_bits: of the mantissa that stay, 0 to 22; 7 with `"nearest"` is bfloat16.
        rounding: `"truncate"` or `"nearest"`.

    >>> MantissaTruncation(num_bits=1).transmit({"w": torch.tensor([1.0, 1.4, 1.6, -1.9])}, seed=0).received["w"]
    tensor([ 1.0000,  1.0000,  1.5000, -1.5000])
    """

    num_bits: int
    rounding: str = "truncate"

    by_tensor: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what float32 has not."""
        if self.num_bits not in range(_MANTISSA):
            raise InvalidConfig(f"num_bits is {self.num_bits}; keep 0 to {_MANTISSA - 1} bits of the mantissa")
        if self.rounding not in ROUNDINGS:
            raise unknown_choice("rounding", self.rounding, ROUNDINGS)

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The shortened weights, with gain and noise variance as the sender can tell them; the seed changes nothing."""
        check_weights(weights)
        check_seed(seed)
        received = {name: self.shorten(tensor).to(tensor.dtype) for name, tensor in weights.items()}
        moments = {name: ErrorMoments.of(tensor, received[name]) for name, tensor in weights.items()}
        noise: dict[str, TensorNoise] = {name: own.noise_variance for name, own in moments.items()}
        gain = {name: own.gain for name, own in moments.items()}
        offset = {name: own.offset for name, own in moments.items()}
        return Observation(received, noise, gain, offset, rounded=True)

    def predict(self, tensor: Tensor) -> ErrorMoments:
        """Gain and noise to be expected of a tensor, integrated over quantiles of its weights."""
        points = weight_points(tensor).float()
        return replace(ErrorMoments.of(points, self.shorten(points)), num_weights=tensor.numel())

    def shorten(self, values: Tensor) -> Tensor:
        """The values with the rest of their mantissa gone, in float32."""
        bits = values.detach().float().contiguous().view(torch.int32)
        dropped = _MANTISSA - self.num_bits
        if self.rounding == "nearest":
            odd = (bits >> dropped) & 1
            bits = bits + odd + (1 << (dropped - 1)) - 1
        return (bits & ~((1 << dropped) - 1)).view(torch.float32)
