"""Unequal protection: tensors that matter are sent several times, and the channel uses are counted.

`n` copies of a weight with independent noise, weighed by their precisions, are one copy with noise of variance
`1 / sum(1 / v_k)`; under equal noise that is `v / n`. What counts is what it costs: a model sent with `n_t` copies of
tensor `t` takes `sum(n_t N_t)` channel uses. The fair rival sends all weights alike in as many uses, which divides the
noise of all by `rate = sum(n_t N_t) / N`. An error that follows from the weights, as of a quantiser or a memory that
cannot hold less than zero, is the same in every copy and does not average out; media that have one are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

import torch
from torch import Tensor

from quietnn.channels.base import Medium, Observation
from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance, TensorNoise, noise_by_tensor, one_variance
from quietnn.weights import Weights, check_weights


@dataclass(frozen=True)
class Repetition:
    """Sends chosen tensors more than once over another medium.

    Attributes:
        medium: what each copy goes through, noise that is only added; every copy has a seed of its own.
        copies: how often, by pattern of tensor names (`"conv1.*"`); the first pattern that fits decides, and what none
            fits is sent once.

    >>> from quietnn.channels.awgn import AWGN
    >>> twice = Repetition(AWGN(noise_variance=1.0), {"head.*": 4})
    >>> twice.transmit({"head.weight": torch.zeros(2), "body.weight": torch.zeros(2)}, seed=0).noise_variance
    {'head.weight': 0.25, 'body.weight': 1.0}
    """

    medium: Medium
    copies: Mapping[str, int]

    def __post_init__(self) -> None:
        """Refuse to send something less than once."""
        for pattern, number in self.copies.items():
            if number != int(number) or number < 1:
                raise InvalidConfig(f"{pattern!r} is to be sent {number} times; give a whole number from 1")

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The weighed copies, with the noise variance that is left on each tensor or weight."""
        check_weights(weights)
        numbers = {name: self.number(name) for name in weights}
        if weights and not any(fnmatch(name, pattern) for name in weights for pattern in self.copies):
            raise InvalidConfig(
                f"no tensor fits {' or '.join(map(repr, self.copies))}; name one of {', '.join(list(weights)[:3])}, ..."
            )
        received: dict[str, Tensor] = {}
        noise: dict[str, TensorNoise] = {}
        for copy in range(max(numbers.values(), default=0)):
            # All weights go along each time, for a medium may scale its noise by them; surplus copies are dropped.
            observation = self.medium.transmit(weights, seed=seed + copy * _NEXT)
            if observation.gain != 1.0:
                raise InvalidConfig(
                    f"{self.medium} makes the same error in every copy; repeat white noise or a radio link instead"
                )
            own = noise_by_tensor(observation.noise_variance, weights)
            if own is None:
                own = dict.fromkeys(weights, one_variance(observation.noise_variance))
            for name in (name for name, number in numbers.items() if copy < number):
                if copy == 0:
                    received[name], noise[name] = observation.received[name], own[name]
                else:
                    received[name], noise[name] = _joined(
                        received[name], noise[name], observation.received[name], own[name]
                    )
        return Observation(received, noise)

    def number(self, name: str) -> int:
        """How often a tensor is sent."""
        return next((number for pattern, number in self.copies.items() if fnmatch(name, pattern)), 1)

    def rate(self, weights: Weights) -> float:
        """Channel uses a weight, over those of sending everything once."""
        total = sum(tensor.numel() for tensor in weights.values())
        return sum(self.number(name) * tensor.numel() for name, tensor in weights.items()) / total


_NEXT = 1_000_003
"""From the seed of one copy to that of the next; far apart, so that draws with neighbouring seeds share no copy."""


def _joined(one: Tensor, noise: TensorNoise, other: Tensor, its_noise: TensorNoise) -> tuple[Tensor, TensorNoise]:
    """The mean of two copies by their precisions, and its noise variance."""
    total = noise + its_noise
    if isinstance(total, Tensor):
        share = torch.where(total > 0, noise / total.clamp(min=torch.finfo(total.dtype).tiny), 0.5)
        return torch.lerp(one, other, share.to(one.dtype).expand(one.shape)), share * its_noise
    share_of_other = noise / total if total else 0.5
    return torch.lerp(one, other, share_of_other), share_of_other * its_noise
