"""Unequal protection: tensors that matter are sent several times, and the channel uses are counted.

`n` copies of a weight with independent noise, weighed by their precisions, are one copy with noise of variance
`1 / sum(1 / v_k)`. A channel with a gain is brought to unit gain first. The part of an error that follows from the
weights, `E[r | w]` less its line, is the same in every copy and does not average out: with `v_s` its variance, `n`
copies leave `v_s + (v - v_s) / n`. A channel all of whose error follows from the weights gains nothing and is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch

import torch
from torch import Tensor

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel, Rated, check_whole, is_by_tensor, settle
from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance, TensorNoise, mean_of, noise_of_each
from quietnn.observation import Observation
from quietnn.weights import Weights, check_weights

MOST_COPIES = 1000
"""Each copy is a transmission of the whole model."""

_NEXT = 1_000_003
"""From the seed of one copy to that of the next; far apart, so that draws with neighbouring seeds share no copy."""


@dataclass(frozen=True)
class Repetition:
    """Sends chosen tensors more than once over another channel.

    Attributes:
        channel: what each copy goes through; every copy has a seed of its own.
        copies: how often, by pattern of tensor names (`"conv1.*"`); the first pattern that fits decides, and what none
            fits is sent once.

    >>> twice = Repetition(AWGN(noise_variance=1.0), {"head.*": 4})
    >>> twice.transmit({"head.weight": torch.zeros(2), "body.weight": torch.zeros(2)}, seed=0).noise_variance
    {'head.weight': 0.25, 'body.weight': 1.0}
    """

    channel: Channel
    copies: Mapping[str, int]

    def __post_init__(self) -> None:
        """Refuse what cannot be counted."""
        if not isinstance(self.copies, Mapping) or not self.copies:
            raise InvalidConfig(f"copies is {self.copies!r}; give numbers by pattern, for example {{'conv1.*': 4}}")
        for pattern, number in self.copies.items():
            check_whole(f"the number of copies of {pattern!r}", number, 1, MOST_COPIES)

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The weighed copies at unit gain, with the noise variance that is left on each tensor or weight."""
        check_weights(weights)
        return self.settled(weights).transmit(weights, seed=seed)

    def settled(self, weights: Weights) -> "SettledRepetition":
        """The same over a channel that is settled, once copies are known to reach a tensor and to bring news."""
        if weights and not any(fnmatch(name, pattern) for name in weights for pattern in self.copies):
            raise InvalidConfig(
                f"no tensor fits {' or '.join(map(repr, self.copies))}; name one of {', '.join(list(weights)[:3])}, ..."
            )
        repeated = SettledRepetition(self, settle(self.channel, weights) if weights else self.channel)
        if any(self.number(name) > 1 for name in weights):
            repeated.check_news(weights)
        return repeated

    def shared_noise(self, tensor: Tensor) -> TensorNoise:
        """The part of the noise variance that no number of copies takes away, where the channel tells one."""
        shared: TensorNoise = self.channel.shared_noise(tensor) if hasattr(self.channel, "shared_noise") else 0.0
        return shared

    def number(self, name: str) -> int:
        """How often a tensor is sent."""
        return next((number for pattern, number in self.copies.items() if fnmatch(name, pattern)), 1)

    def rate(self, weights: Weights) -> float:
        """Channel uses a weight, over those of sending everything once."""
        total, uses = 0, 0.0
        for name, tensor in weights.items():  # one by one: every tensor has blocks, slots and pilots of its own
            rate_of_one = self.channel.rate({name: tensor}) if isinstance(self.channel, Rated) else 1.0
            total += tensor.numel()
            uses += self.number(name) * tensor.numel() * rate_of_one
        return uses / total if total else 1.0


@dataclass(frozen=True)
class SettledRepetition:
    """A repetition over a channel that knows what it must of all tensors."""

    repetition: Repetition
    channel: Channel

    @property
    def by_tensor(self) -> bool:
        """Whether every tensor can be sent by itself, as the channel has it."""
        return is_by_tensor(self.channel)

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The weighed copies at unit gain, with the noise variance that is left on each tensor or weight."""
        check_weights(weights)
        numbers = {name: self.repetition.number(name) for name in weights}
        received: dict[str, Tensor] = {}
        noise: dict[str, TensorNoise] = {}
        shared = {name: self.repetition.shared_noise(own) for name, own in weights.items() if numbers[name] > 1}
        for copy in range(max(numbers.values(), default=0)):
            wanted = {name: tensor for name, tensor in weights.items() if copy < numbers[name]}
            # A channel that needs all weights at once gets them each time; surplus copies are dropped.
            arrived, told = self._copy(wanted if self.by_tensor else weights, seed=seed + copy * _NEXT)
            for name in wanted:
                fresh = _less(told[name], shared.get(name, 0.0))
                if copy == 0:
                    received[name], noise[name] = arrived[name], fresh
                else:
                    received[name], noise[name] = _joined(received[name], noise[name], arrived[name], fresh)
        return Observation(received, {name: left + shared.get(name, 0.0) for name, left in noise.items()})

    def check_news(self, weights: Weights) -> None:
        """Refuse a channel whose second copy is the first one, noise and all; mostly the first tensor tells."""
        noisy = False
        each: Iterable[Weights] = ({name: tensor} for name, tensor in weights.items())  # read one by one
        for part in each if self.by_tensor else [dict(weights)]:
            (first, told), (second, _) = (self._copy(part, seed=seed) for seed in (0, _NEXT))
            if not all(torch.equal(first[name], second[name]) for name in part):
                return
            noisy = noisy or any(mean_of(told[name]) for name in part)
        if noisy:
            raise InvalidConfig(
                f"{self.repetition.channel} makes the same error in every copy, as that follows from the weights; "
                "repeat a channel with noise of its own: white noise, a radio link, a memory, a dithered quantiser"
            )

    def _copy(self, weights: Weights, *, seed: int) -> tuple[dict[str, Tensor], Mapping[str, TensorNoise]]:
        """One copy of everything at unit gain, and its noise by tensor."""
        observation = replace(self.channel.transmit(weights, seed=seed), noisy=tuple(weights)).at_unit_gain()
        return observation.received, noise_of_each(observation.noise_variance, weights)


def protected(wnr_db: float, names: str = "conv1.*|fc.*|linear.*|head.*|classifier.*", copies: int = 4) -> Repetition:
    """White noise of a WNR, with the tensors that fit the patterns `names`, which have `|` between them, sent often.

    >>> protected(wnr_db=10.0, names="fc.*", copies=2)
    Repetition(channel=AWGN(wnr_db=10.0, noise_variance=None, power=<Power.VARIANCE: 'variance'>), copies={'fc.*': 2})
    """
    return Repetition(AWGN(wnr_db=wnr_db), dict.fromkeys(names.split("|"), copies))


def _less(noise: TensorNoise, part: TensorNoise) -> TensorNoise:
    """A noise variance without a part of it; never below zero, for the part is told by a law and not by the draw."""
    rest = noise - part
    return rest.clamp(min=0.0) if isinstance(rest, Tensor) else max(rest, 0.0)


def _joined(one: Tensor, noise: TensorNoise, other: Tensor, its_noise: TensorNoise) -> tuple[Tensor, TensorNoise]:
    """The mean of two copies by their precisions, and its noise variance."""
    total = noise + its_noise
    if isinstance(total, Tensor):
        share = torch.where(total > 0, noise / total.clamp(min=torch.finfo(total.dtype).tiny), 0.5)
        return torch.lerp(one, other, share.to(one.dtype).expand(one.shape)), share * its_noise
    share_of_other = noise / total if total else 0.5
    return torch.lerp(one, other, share_of_other), share_of_other * its_noise
