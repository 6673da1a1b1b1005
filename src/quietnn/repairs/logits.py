"""The scale of logits behind a noisy head: Wiener's factor, from the head's input and weights alone.

Of the logits `l = (W + Z) h` of a token the noise makes `Z h`, of variance `n = sigma_z^2 |h|^2` over the vocabulary.
With `C`, the covariance of the head's rows, all of `l` has `v = h^T C h`, so no logits are needed. The head's input is
multiplied by one factor for all tokens (docs/how-it-works/directions.md):

    mean over tokens of (v - n)+ / v

Where rows differ in noise the least counts: one factor can take out no more than all logits have.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, call
from quietnn.errors import InvalidWeights
from quietnn.noise import TensorNoise, mean_of
from quietnn.repairs.kinds import is_transposed_linear, normalises_each_input
from quietnn.watching.batch_moments import wide
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.watching.survey import given
from quietnn.weights import Weights

_ROWS_AT_ONCE = 4096
"""Rows of a head that are centred at once."""

_LEAST = 1e-30
"""Far below the variance of any logits."""

_OFF = 0.1
"""The share of a change of scale that rounding may make of it; what is further off has not changed in scale alone."""


class NoisyHead:
    """The linear layer that makes logits over a vocabulary, and how much of them its noise makes."""

    def __init__(self, layer: nn.Module, received: Tensor, noise: TensorNoise) -> None:
        self.layer = layer
        self._received, self._given_noise = received, noise
        self._total, self._count = 0.0, 0

    @cached_property
    def _covariance(self) -> Tensor:
        return _covariance(self._received.T if is_transposed_linear(self.layer) else self._received)

    @cached_property
    def _noise(self) -> TensorNoise:
        """The least noise of a row, by input."""
        if not isinstance(self._given_noise, Tensor):
            return self._given_noise
        noise = self._given_noise.expand_as(self._received)
        return (noise.T if is_transposed_linear(self.layer) else noise).to(self._covariance.dtype).amin(0)

    def watched(self) -> AbstractContextManager[Any]:
        """Take in what enters the layer for a while."""
        handle: AbstractContextManager[Any] = self.layer.register_forward_pre_hook(self._see, with_kwargs=True)
        return handle

    def _see(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tokens = _rows(given(args, kwargs)).to(self._covariance.dtype)
        seen = ((tokens @ self._covariance) * tokens).sum(1).clamp_min(_LEAST)
        made = (tokens.square() * self._noise).sum(1)
        self._total += float((1.0 - made / seen).clamp_min(0.0).sum(dtype=torch.float64))
        self._count += len(tokens)

    @property
    def factor(self) -> float:
        """What is left of the logits: 1 where all of them is signal, or none were seen."""
        return self._total / self._count if self._count else 1.0

    def scale(self, network: nn.Module, inputs: Inputs, normalisation: tuple[type[nn.Module], ...]) -> bool:
        """Multiply what enters the head by the factor, in place; whether there was a way to.

        A head of its own weights is multiplied itself. One that is tied to an embedding stays, and the last
        normalisation in front of it is scaled: its gain and bias, or one plus its gain where the network adds one. A
        run of a few inputs shows whether nothing but the scale of the head's input has changed.
        """
        if not math.isfinite(self.factor):
            raise InvalidWeights("what enters the head is not finite; the noise has blown up the network")
        weight: Tensor = self.layer.weight  # type: ignore[assignment]
        if sum(one is weight for _, one in network.named_parameters(remove_duplicate=False)) == 1:
            weight.mul_(self.factor)
            return True
        before, norm = self._arrives(network, inputs, normalisation)
        if norm is None or before is None:
            return False
        former = {name: one.clone() for name, one in norm.named_parameters()}
        for added in (0.0, 1.0):
            for name, one in norm.named_parameters():
                offset = added if name == "weight" else 0.0
                one.copy_((former[name] + offset) * self.factor - offset)
            after, _ = self._arrives(network, inputs, normalisation)
            if after is not None and _is_scaled(before, after, self.factor):
                return True
        for name, one in norm.named_parameters():
            one.copy_(former[name])
        return False

    def _arrives(
        self, network: nn.Module, inputs: Inputs, normalisation: tuple[type[nn.Module], ...]
    ) -> tuple[Tensor | None, nn.Module | None]:
        """What enters the head on some inputs, and the last normalisation that was called before."""
        entered: Tensor | None = None
        norm: nn.Module | None = None

        def at_norm(layer: nn.Module, *_: Any) -> None:
            nonlocal norm
            norm = layer

        def at_head(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal entered
            entered = _rows(given(args, kwargs)).clone()
            raise _Enough

        with ExitStack() as hooks, undisturbed(network), eagerly(network):
            for layer in network.modules():
                if normalises_each_input(layer, normalisation):
                    hooks.enter_context(layer.register_forward_pre_hook(at_norm))
            hooks.enter_context(self.layer.register_forward_pre_hook(at_head, with_kwargs=True))
            with suppress(_Enough):
                call(network, inputs)
        return entered, norm


class _Enough(BaseException):
    """Ends a run at the head; no network is meant to catch it."""


def noisy_head(network: nn.Module, received: Weights, noise: Mapping[str, TensorNoise]) -> NoisyHead | None:
    """The one linear layer that carries noise, is as received, and has more outputs than inputs.

    That is a language model's, which a repair of branches leaves alone. The few outputs of a classifier tell too little
    of their variance, and a scale changes none of its answers.

    >>> head = nn.Linear(2, 5)
    >>> found = noisy_head(nn.Sequential(nn.LayerNorm(2), head), {"1.weight": head.weight.detach()}, {"1.weight": 0.1})
    >>> found is not None
    True
    """
    names = {id(one): name for name, one in network.named_parameters(remove_duplicate=False) if name in received}
    found = {
        layer: name
        for layer in network.modules()
        if (type(layer) is nn.Linear or is_transposed_linear(layer))
        and (name := names.get(id(layer.weight), "")) in received
        and mean_of(noise[name]) > 0
        and _is_wide(layer)
        and torch.equal(layer.weight, received[name])  # type: ignore[arg-type]
    }
    if len(found) != 1:
        return None
    ((layer, name),) = found.items()
    return NoisyHead(layer, received[name], noise[name])


def _is_wide(layer: nn.Module) -> bool:
    """Whether it has more outputs than inputs."""
    shape: tuple[int, ...] = tuple(layer.weight.shape)  # type: ignore[arg-type]
    inputs, outputs = shape if is_transposed_linear(layer) else shape[::-1]
    return outputs > inputs


def _covariance(rows: Tensor) -> Tensor:
    """The covariance of some vectors, (inputs, inputs), a few of them at a time."""
    mean = rows.mean(0, dtype=torch.promote_types(rows.dtype, torch.float32))
    total = torch.zeros(len(mean), len(mean), dtype=mean.dtype, device=mean.device)
    for part in torch.split(rows, _ROWS_AT_ONCE):
        centred = part - mean
        total.addmm_(centred.T, centred)
    return total / (len(rows) - 1)


def _rows(entered: Tensor) -> Tensor:
    return wide(entered.detach().reshape(-1, entered.shape[-1]))


def _is_scaled(before: Tensor, after: Tensor, factor: float) -> bool:
    """Whether a tensor has become so many times itself.

    >>> _is_scaled(torch.ones(3), torch.full((3,), 0.501), 0.5), _is_scaled(torch.ones(3), torch.full((3,), 0.6), 0.5)
    (True, False)
    """
    if before.shape != after.shape:
        return False
    return bool((after - factor * before).norm() <= _OFF * abs(1.0 - factor) * before.norm())
