"""MMSE along the directions that inputs take: for linear layers of networks that normalise each input, without labels.

Turned by the eigenvectors `u_k` of `E[x x^T]`, its inputs' second moments, the `d` rows `R` of a layer have a factor
for each column by James and Stein (1961), where MMSE has one for all (docs/how-it-works/directions.md):

    1 - (d - 2) sigma_z^2 / |R u_k|^2        or zero if that is negative

Where rows differ too, and the outputs gain by it, each turned weight has a factor of its own.
"""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidWeights
from quietnn.evidence import some_inputs
from quietnn.noise import NoiseVariance, TensorNoise, noise_of_each
from quietnn.observation import Observation, observe
from quietnn.random_effects import beyond_error
from quietnn.repairs.base import Repaired
from quietnn.repairs.branches import denoise_branches
from quietnn.repairs.kinds import is_transposed_linear
from quietnn.repairs.logits import noisy_head
from quietnn.targets import with_weights
from quietnn.watching.batch_moments import wide
from quietnn.watching.blocks import BlockByBlock
from quietnn.watching.survey import given

_TINY = 1e-30
"""Far below the mean square of any weights: no scale is zero."""

_LEAST = 1e-9
"""A variance of nothing, beside a mean square of one; sums of its powers to the minus second are float32."""


@torch.inference_mode(False)
@torch.no_grad()
def denoise_directions(
    what: object,
    inputs: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    scale_logits: bool = True,
) -> Repaired:
    """MMSE of each linear layer along the directions of its inputs; what else there is as by `denoise_branches`.

    For transformers, language models first of all: one run over the inputs and an eigendecomposition a layer. No
    labels, no gradients.

    Args:
        what: the network as received.
        inputs: what the network is for, in any form of `Evidence`; a few thousand tokens, or a hundred images.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, instead.
        scale_logits: whether the logits over a vocabulary are held back by as much as they are noise of the head
            (`repairs/logits.py`); `details["logits_factor"]` then has the factor. False where a fit is to start.

    Raises:
        InvalidConfig: if no layer normalises each input, or some layer has stored statistics.
        InvalidWeights: if what enters a layer is not finite.

    >>> network = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> repaired = denoise_directions(network, torch.rand(10, 4), noise_variance=0.01).model
    >>> torch.equal(repaired[0].weight, network[0].weight), torch.equal(repaired[2].weight, network[2].weight)
    (False, True)
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = some_inputs(inputs, "denoise_directions")
    result = denoise_branches(observation, evidence).model
    received, noise = observation.weights, noise_of_each(observation.known_noise, observation.weights)
    layers = _layers(observation, result)
    head = noisy_head(result, received, noise)
    if not layers and (head is None or not scale_logits):
        return Repaired(result, "directions")
    most = sum(received[name].nbytes for name in layers)
    run = BlockByBlock(result, evidence, most=most, until=None if head is None else head.layer)
    with _SecondMoments(layers) as moments, head.watched() if head is not None and scale_logits else nullcontext():
        for _ in run.parts():
            for names, power, directions in moments.directions():
                for name in names:
                    transposed = is_transposed_linear(layers[name])
                    estimate = along(received[name], noise[name], directions, power=power, transposed=transposed)
                    with_weights(result, {name: estimate}, in_place=True)
    if scale_logits and head is not None and head.scale(result, evidence.first(2), observation.normalisation):
        return Repaired(result, "directions", run.num_passes, {"logits_factor": head.factor})
    return Repaired(result, "directions", run.num_passes)


def along(
    received: Tensor,
    noise: TensorNoise,
    directions: Tensor,
    *,
    power: Tensor | float = 1.0,
    transposed: bool = False,
) -> Tensor:
    """The estimate of a layer's weights, a row for each output (a column if `transposed`), along orthonormal columns.

    Where noise differs, each turned weight has its own share; weights without noise stay. `power` is that of the inputs
    in each direction: an error there counts as much.

    >>> weights = torch.tensor([[2.0, 0.1], [2.0, -0.1], [2.0, 0.1], [2.0, -0.1]])
    >>> along(weights, 0.5, torch.eye(2))[0]                             # 1 - 2 * 0.5 / 16, and no signal
    tensor([1.8750, 0.0000])
    """
    rows = (received.T if transposed else received).to(directions.dtype)
    turned = rows @ directions
    own = torch.as_tensor(noise, dtype=directions.dtype)
    if own.dim():
        own = own.expand_as(received)
        own = own.T if transposed else own
    variance = own @ directions.square() if own.dim() else own
    estimate = (turned * _factors(turned, variance, power)) @ directions.T
    if own.dim():
        estimate = torch.where(own > 0, estimate, rows)
    return (estimate.T if transposed else estimate).to(received.dtype)


def _factors(turned: Tensor, variance: Tensor, power: Tensor | float) -> Tensor:
    """The factor of each turned weight, `s / (s + variance)`: its signal `s` is one of its column times one of its row.

    That of a column is the mean of `q^2 / (1 - 2 / d) - variance`: alone it gives the factor of James and Stein. Where
    noise differs, each weight has the precision of its square, which takes two rounds: `q^2` spreads by `sqrt(2)` times
    its own mean, signal and noise. Rows stay out where the error of the outputs, as Stein (1981) estimates it, is not
    less with them.
    """
    num_rows = len(turned)
    scale = turned.square().mean().clamp_min(_TINY)
    squares, variance = turned.square() / scale, variance / scale
    excess = squares / (1.0 - 2.0 / num_rows if num_rows > 2 else 1.0) - variance
    signal = excess.mean(0).clamp_min(0.0)
    for _ in range(2 if variance.dim() else 0):
        precision = (signal + variance).clamp_min(_LEAST).pow(-2)
        signal = (excess * precision).sum(0).div(precision.sum(0)).clamp_min(0.0)
    by_column, by_row = (
        one / (one + variance).clamp_min(_LEAST) for one in (signal, signal * _rows(excess, signal, variance))
    )
    risk_by_column, risk_by_row = (
        (((1.0 - one).square() * squares + 2.0 * one * variance) * power).sum() for one in (by_column, by_row)
    )
    return by_row if float(risk_by_row) < float(risk_by_column) else by_column


def _rows(excess: Tensor, signal: Tensor, variance: Tensor) -> Tensor:
    """How much signal each row has beside an average one, (rows, 1), as far as that is more than sampling error.

    Each weight tells the ratio of `q^2 - variance` to its column's signal. The precision of that is half the square of
    `signal / (signal + variance)`, so that of a row is half of the sum of these.
    """
    total = (signal + variance).clamp_min(_LEAST)
    shares = (signal / total).expand_as(excess)
    weight = shares.square().sum(1, keepdim=True).clamp_min(_LEAST)
    deviations = (excess * shares / total).sum(1, keepdim=True) / weight - 1.0
    error = 2.0 / weight
    spread = (deviations.square() - error).mean().clamp_min(0.0)
    return (1.0 + beyond_error(spread + error, error) * deviations).clamp_min(0.0)


def _layers(observation: Observation[Any, Any], result: nn.Module) -> dict[str, nn.Module]:
    """Linear layers by the name of their weight, where branches changed it: not a head, and not without noise."""
    received = observation.weights
    own = dict(result.named_parameters())
    changed = {id(own[name]): name for name in received if name in own and not torch.equal(own[name], received[name])}
    return {
        changed[id(layer.weight)]: layer
        for layer in result.modules()
        if (type(layer) is nn.Linear or is_transposed_linear(layer)) and id(layer.weight) in changed
    }


class _SecondMoments:
    """Sums of `x x^T` over all inputs of some layers; those that are given the same `x`, as in an attention, share one.

    A layer whose directions were asked for is not watched any longer.
    """

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self._layers, self._hooks = layers, ExitStack()
        self._sums: dict[str, Tensor] = {}  # by the first layer that was given these inputs
        self._owners: dict[str, str] = {}
        self._done: set[str] = set()
        self._last: tuple[str, weakref.ref[Tensor] | None] = ("", None)

    def __enter__(self) -> "_SecondMoments":
        for name, layer in self._layers.items():
            self._hooks.enter_context(layer.register_forward_pre_hook(partial(self._see, name), with_kwargs=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def _see(self, name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name in self._done:
            return
        entered = given(args, kwargs)
        owner, last = self._last
        if last is not None and last() is entered and self._owners.setdefault(name, owner) == owner:
            return
        self._last = name, weakref.ref(entered)
        rows = wide(entered.detach().reshape(-1, entered.shape[-1]))
        owner = self._owners.setdefault(name, name)
        self._sums[owner] = self._sums[owner].addmm_(rows.T, rows) if owner in self._sums else rows.T @ rows

    def directions(self) -> Iterator[tuple[list[str], Tensor, Tensor]]:
        """Layers, their inputs' power in each direction, and the directions as columns; sums are let go one by one."""
        for owner in list(self._sums):
            moments = self._sums.pop(owner)
            if not bool(torch.isfinite(moments).all()):
                raise InvalidWeights(
                    f"what enters the layer of {owner} is not finite; the noise has blown up the network"
                )
            names = [name for name, own in self._owners.items() if own == owner]
            self._done.update(names)
            yield names, *torch.linalg.eigh(moments)
