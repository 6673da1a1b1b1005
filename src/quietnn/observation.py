"""What arrived: noisy weights, and all that is known of how they became noisy."""

import math
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from numbers import Real
from types import NoneType
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from typing_extensions import TypeVar as TypeVarWithDefault

from quietnn.errors import InvalidConfig, QuietnnError, check_is
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance, mean_variance, one_variance
from quietnn.targets import noisy_weights, with_weights
from quietnn.theory.family import noise_variance_within
from quietnn.weights import NORMALISATION_TYPES, Weights, check_module, check_normalisation, check_weights

Received = TypeVar("Received", covariant=True)
Noise = TypeVarWithDefault("Noise", covariant=True, default=float)
Found = TypeVar("Found")

_MOST_REMEMBERED = 12
"""Findings that an observation keeps: enough for every method on the two halves of the examples and on all."""

_VERSIONS = "versions"

_IN_TILES, _TILE_READER = "analog_module", "quietnn.analog.readout"
"""What a layer of aihwkit keeps its weights in, and who reads them; loaded for such a network alone."""

Gain = float | Mapping[str, float]
"""By how much a channel multiplies the weights, or what it adds to all alike: one number, or by tensor name."""


@dataclass(frozen=True, eq=False)
class Observation(Generic[Received, Noise]):
    """What a receiver holds: `r = gain (w + z) + offset` and the variance of `z` (eq. 2).

    `z` has mean zero and is uncorrelated with `w`. Every repair takes an observation, and undoes gain and offset first.
    An observation caches what was found about the weights, so do not change them in place (`tensor.data`).

    Attributes:
        received: the noisy weights, of the kind that was sent: a module, a state dict or a tensor.
        noise_variance: `sigma_z^2`, one for the whole model, or by tensor name, each a number or a tensor. None if it
            is not known: `repair` then estimates it from BatchNorm and inputs.
        gain: what the weights were multiplied by; 1 for additive noise.
        offset: what was added to all weights of a tensor alike; 0 for noise of mean zero.
        rounded: whether the weights were rounded. Rounding error is not noise. None if it is not known.
        noisy: names of the tensors that went through the channel, if the usual rule does not fit.
        normalisation: module types, beside the usual ones, whose parameters carry no noise.
        statistics: of the clean weights, `{"whole": ...}`, if the sender tells them.
        as_received: the observation before gain and offset were undone.

    >>> observation = Observation(torch.tensor([1.0, 2.0]), 0.1, gain=0.5, offset=1.0)
    >>> observation.at_unit_gain().received
    tensor([0., 2.])
    """

    received: Received
    noise_variance: Noise
    gain: Gain = field(default=1.0, repr=False)
    offset: Gain = field(default=0.0, repr=False)
    rounded: bool | None = field(default=None, repr=False)
    noisy: tuple[str, ...] | None = field(default=None, repr=False)
    normalisation: tuple[type[nn.Module], ...] = field(default=NORMALISATION_TYPES, repr=False)
    statistics: Mapping[str, WeightStatistics] | None = field(default=None, repr=False)
    as_received: "Observation[Any, Any] | None" = field(default=None, repr=False)
    _memory: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be an observation, in the call that makes it."""
        _check_kind(self.received)
        check_is(
            self.noise_variance,
            (Real, Tensor, Mapping, NoneType),
            "noise_variance",
            "what arrived comes first, then a number: Observation(model, 1e-4)",
        )
        if isinstance(self.noise_variance, Real):
            one_variance(cast(float, self.noise_variance))
        for name, value in (("gain", self.gain), ("offset", self.offset)):
            check_is(value, (Real, Mapping), name, f"give a number, or a dict by tensor name: {name}=1.0")
            numbers = value.values() if isinstance(value, Mapping) else (value,)
            if not all(math.isfinite(number) for number in numbers) or (name == "gain" and 0 in numbers):
                raise InvalidConfig(
                    f"{name} is {value}; it must be finite{', and not 0' if name == 'gain' else ''}: {name}=1.0"
                )
        check_is(self.noisy, (tuple, list, NoneType), "noisy", "give names of tensors: noisy=['head.weight']")
        check_normalisation(self.normalisation)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The noisy tensors by name, as they are in what was received; they share its memory."""
        return noisy_weights(
            cast("nn.Module | Weights | Tensor", self.received), noisy=self.noisy, normalisation=self.normalisation
        )

    @property
    def model(self) -> nn.Module:
        """The received network. A state dict or a tensor is refused, because no inputs can be run through it."""
        if not isinstance(self.received, nn.Module):
            raise QuietnnError(
                f"this repair runs the network, and what arrived is a {type(self.received).__name__}; "
                "load it first, model.load_state_dict(state), and give the network instead"
            )
        return self.received

    @property
    def mean_noise_variance(self) -> float:
        """The noise variance of an average weight."""
        return mean_variance(self.known_noise, self.weights)

    @property
    def known_noise(self) -> NoiseVariance:
        """The noise variance; an error if it is not known."""
        if self.noise_variance is None:
            raise InvalidConfig(
                "the noise power is unknown; give it: noise_variance=1e-4 or wnr_db=6, beside the other arguments of "
                "this call, or to observe(model, ...). noise_power_from_pilots, noise_power_from_receptions and "
                "noise_power_from_batch_norm estimate it"
            )
        return cast(NoiseVariance, self.noise_variance)

    def at_unit_gain(self) -> "Observation[Received, Noise]":
        """The same observation with gain and offset undone: `(r - offset) / gain = w + z`."""
        if (self.gain, self.offset) == (1.0, 0.0):
            return self
        return self.remember("at unit gain", self._at_unit_gain)

    def _at_unit_gain(self) -> "Observation[Received, Noise]":
        told = [value for value in (self.gain, self.offset) if isinstance(value, Mapping)]
        named = replace(self, noisy=tuple(told[0])) if self.noisy is None and told else self
        missing = [name for name in named.weights if any(name not in value for value in told)]
        if missing:
            raise InvalidConfig(
                f"the channel tells no gain of {missing[0]!r}, only of {', '.join(list(told[0])[:4])}; "
                "name tensors that went through it, or leave `noisy` out"
            )
        whole = {
            name: undone(own, of_tensor(self.gain, name), of_tensor(self.offset, name))
            for name, own in named.weights.items()
        }
        received = with_weights(self.received, whole)  # type: ignore[type-var]
        return replace(self, received=received, gain=1.0, offset=0.0, as_received=self)

    def on(self, received: Any, **changes: Any) -> "Observation[Any, Any]":
        """The same facts about another state of the network, for example after denoising."""
        return replace(self, **{"received": received, "as_received": None, **changes})

    def with_noise(self, noise_variance: NoiseVariance) -> "Observation[Received, NoiseVariance]":
        """The same weights under another noise variance."""
        return replace(cast("Observation[Received, Any]", self), noise_variance=noise_variance)

    def remember(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """The result of `make`, computed once per key, for searches that several methods share."""
        versions = tuple(_version(tensor) for tensor in self.weights.values())
        if self._memory.get(_VERSIONS, versions) != versions:
            self._memory.clear()  # somebody has written into the received weights since
        self._memory[_VERSIONS] = versions
        if key not in self._memory:
            self._memory[key] = make()
            for old in [one for one in self._memory if one != _VERSIONS][:-_MOST_REMEMBERED]:
                del self._memory[old]
        return cast(Found, self._memory[key])


def _version(tensor: Tensor) -> int:
    """Counts what is written into a tensor; tensors of inference mode do not count."""
    return -1 if tensor.is_inference() else tensor._version


def observe(
    what: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> Observation[Any, Any]:
    """Describe what arrived: an observation at unit gain, which every repair takes as its first argument.

    Args:
        what: an `Observation`; or a module, a state dict or a tensor. A network of aihwkit is read out of its tiles.
        noise_variance: `sigma_z^2`. For an observation, it replaces the value held there.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels instead; `sigma_z^2 = Var(r) / (1 + eta)`.
        noisy: names of the noisy tensors, where the usual rule does not fit.
        normalisation: module types whose parameters carry no noise.

    >>> observe(torch.tensor([3.0, -3.0]), wnr_db=0.0).noise_variance
    4.5
    """
    if noise_variance is not None and wnr_db is not None:
        raise InvalidConfig(
            f"the noise was given twice, noise_variance={noise_variance} and wnr_db={wnr_db}; leave one out"
        )
    if isinstance(noisy, str):
        raise InvalidConfig(f"noisy is the text {noisy!r}; give names of tensors: noisy=[{noisy!r}]")
    if isinstance(what, nn.Module) and any(hasattr(layer, _IN_TILES) for layer in what.modules()):
        what = import_module(_TILE_READER).read_out(what)
    if isinstance(what, Observation):
        facts: dict[str, Any] = {} if noisy is None else {"noisy": tuple(noisy)}
        if normalisation is not NORMALISATION_TYPES:
            facts["normalisation"] = normalisation
        observation = (replace(what, **facts) if facts else what).at_unit_gain()
    else:
        observation = Observation(
            what, noise_variance, noisy=None if noisy is None else tuple(noisy), normalisation=normalisation
        )
    if isinstance(observation.received, nn.Module):
        observation.remember(
            "checked", lambda: check_module(observation.model, normalisation=observation.normalisation)
        )
    if wnr_db is not None:
        check_weights(observation.weights)
        received = WeightStatistics.from_clean(observation.weights.values())
        noise_variance = noise_variance_within(wnr_db, received.variance)
    if noise_variance is not None and noise_variance is not observation.noise_variance:
        observation = observation.with_noise(noise_variance)
    return observation


def _check_kind(what: object) -> None:
    if isinstance(what, type) and issubclass(what, nn.Module):
        raise InvalidConfig(f"{what.__name__} is a class; pass a network: repair({what.__name__}(), ...)")
    if isinstance(what, nn.Module | Mapping | Tensor):
        return
    hint = "for example repair(model, wnr_db=6)"
    if isinstance(what, str):
        hint = "load it first, or use the command line: quietnn repair FILE OUT"
    raise InvalidConfig(
        f"the first argument is a {type(what).__name__}; give what arrived: an Observation, a module, a state dict or "
        f"a tensor; {hint}"
    )


def of_tensor(value: Gain, name: str) -> float:
    """The gain or offset of one tensor.

    >>> of_tensor(2.0, "w"), of_tensor({"w": 3.0}, "w")
    (2.0, 3.0)
    """
    return value[name] if isinstance(value, Mapping) else value


def undone(received: Tensor, gain: float, offset: float) -> Tensor:
    """`(r - offset) / gain = w + z` of one tensor; 16-bit tensors are computed in float32 and rounded once.

    >>> undone(torch.tensor([1.0, 2.0]), gain=0.5, offset=1.0)
    tensor([0., 2.])
    """
    if offset == 0.0:
        return received / gain
    exact = torch.promote_types(received.dtype, torch.float32)
    return ((received.to(exact) - offset) / gain).to(received.dtype)
