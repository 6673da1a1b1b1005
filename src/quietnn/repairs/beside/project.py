"""The nearest network that what may act beside the weights can make: for repairs that rewrite them.

Of a received row `R` and a repaired one `W` the best factor is `R W / R R`, by least squares. What is left, `W - s R`,
is cut to its leading singular directions (Eckart and Young 1936); or all of `W - R` is, where that keeps more. All
other parameters and buffers are taken as they are.
"""

from typing import Any

import torch
from torch import Tensor, nn

from quietnn.observation import Observation
from quietnn.repairs.beside.beside import Beside, beside_of
from quietnn.repairs.beside.part import Part, output_axes
from quietnn.repairs.beside.where import Where, rows_of
from quietnn.targets import with_weights
from quietnn.watching.batch_moments import wide

_EXACT = 1e-10
"""Below this share of a matrix's power, what is left of a change is rounding."""


def projected(observation: Observation[Any, Any], model: nn.Module, where: Where) -> tuple[nn.Module, Beside, float]:
    """A repaired network with its matrices as near as they may be, what stands beside them, and the share kept.

    The share is that of the squared change of all matrices: 1 where nothing was lost.
    """
    received, repaired = observation.weights, dict(model.named_parameters())
    if observation.as_received is not None and _are_equal(observation.as_received.model, model):
        return model, Beside(), 1.0  # it left the gain, too
    axes = output_axes(observation.model)
    parts: dict[str, Part] = {}
    rest: dict[str, Tensor] = {}
    change = lost = 0.0
    for name, weight in received.items():
        if weight.dim() < 2 or torch.equal(weight, repaired[name]):
            continue
        before, after = wide(weight), wide(repaired[name].detach())
        scale = _best_scale(before, after, axes[name])
        left = after - scale * before
        change += float((after - before).square().sum(dtype=torch.float64))
        if float(left.square().sum()) > _EXACT * float(after.square().sum()):
            rest[name] = left
        parts[name] = Part(scale)
    if where.trainable == "adapter":
        _add_low_rank(parts, rest, observation, model, where)
    merged = {name: part.applied(received[name]) for name, part in parts.items()}
    for name in rest:
        lost += float((wide(merged[name]) - wide(repaired[name].detach())).square().sum(dtype=torch.float64))
    finished = with_weights(model, merged)
    return finished, beside_of(observation, finished, parts), 1.0 - lost / change if change else 1.0


def _are_equal(one: nn.Module, other: nn.Module) -> bool:
    others = other.state_dict()
    return all(torch.equal(tensor, others[name]) for name, tensor in one.state_dict().items())


def _best_scale(before: Tensor, after: Tensor, axis: int | None) -> Tensor:
    """The factor of each output that takes one matrix nearest to the other; one where there is nothing to scale."""
    others = [place for place in range(before.dim()) if place != axis]
    power = before.square().sum(others, keepdim=True)
    factor = (before * after).sum(others, keepdim=True) / power.clamp_min(torch.finfo(power.dtype).tiny)
    return torch.where(power > 0, factor, torch.ones_like(factor))


_Decomposed = tuple[Tensor, Tensor, Tensor]


def _decompose(left: Tensor) -> _Decomposed:
    up, values, down = torch.linalg.svd(rows_of(left), full_matrices=False)
    return up, values, down


def _beyond(decomposed: _Decomposed, rank: int) -> float:
    """The power that directions beyond a rank have."""
    return float(decomposed[1][rank:].square().sum())


def _add_low_rank(
    parts: dict[str, Part], rest: dict[str, Tensor], observation: Observation[Any, Any], model: nn.Module, where: Where
) -> None:
    """Give each part the leading directions of what its scale has left over."""
    decomposed: dict[str, _Decomposed] = {}
    for name, left in rest.items():
        scale, received = parts[name].scale, wide(observation.weights[name])
        assert scale is not None
        scaled, plain = _decompose(left), _decompose(left + (scale - 1) * received)
        rank = where.usual_rank(observation.weights)
        is_plain = _beyond(plain, rank) < _beyond(scaled, rank)  # as of a repair that adds low rank and no factor
        decomposed[name] = plain if is_plain else scaled
        if is_plain:
            parts[name] = Part()
    beside = beside_of(observation, model, parts)
    ranks = where.ranks(
        {name: values for name, (_, values, _) in decomposed.items()},
        observation.weights,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        spent=beside.num_parameters,
    )
    for name, rank in ranks.items():
        up, values, down = decomposed[name]
        parts[name] = Part(parts[name].scale, (up[:, :rank] * values[:rank], down[:rank]))
