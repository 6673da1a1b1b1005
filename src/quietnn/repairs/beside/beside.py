"""What a repair adds beside weights that stay: collected, counted, saved, and put to work."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.observation import Observation, of_tensor
from quietnn.repairs.beside.layers import put_beside
from quietnn.repairs.beside.part import Part, output_axes
from quietnn.repairs.beside.where import rows_of
from quietnn.targets import some_of
from quietnn.weights import Weights, check_kind

_KINDS = ("scales", "low_rank_B", "low_rank_A", "replaced", "statistics")


@dataclass(frozen=True, eq=False, repr=False)
class Beside:
    """What stands beside the weights of a network that cannot be rewritten: `scale * R + B A` for each matrix `R`.

    `R` is the received weight, bit for bit. Gain and offset of the channel are undone beside it, too.

    Attributes:
        scales: by tensor, a factor for each output, shaped to multiply the weight: `(outputs, 1, ...)`.
        low_rank: by tensor, `(B, A)`; their product has the shape of `weight.flatten(1)`.
        replaced: by tensor, new values of parameters that are not matrices: biases, gains of normalisation layers.
        statistics: by buffer, new values: running means and variances.

    >>> chip = nn.Linear(2, 2, bias=False)
    >>> beside = Beside(scales={"weight": torch.tensor([[2.0], [1.0]])})
    >>> torch.equal(beside.wrap(chip)(torch.eye(2)), beside.merge(chip)(torch.eye(2)))
    True
    >>> beside
    Beside(1 scaled, 0 low-rank, 0 replaced, 0 statistics: 2 parameters)
    """

    scales: Weights = field(default_factory=dict)
    low_rank: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    replaced: Weights = field(default_factory=dict)
    statistics: Weights = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line."""
        return (
            f"Beside({len(self.scales)} scaled, {len(self.low_rank)} low-rank, {len(self.replaced)} replaced, "
            f"{len(self.statistics)} statistics: {self.num_parameters} parameters)"
        )

    @property
    def num_parameters(self) -> int:
        """How many numbers stand beside the network. Statistics are buffers and do not count."""
        tensors = (
            *self.scales.values(),
            *self.replaced.values(),
            *(one for pair in self.low_rank.values() for one in pair),
        )
        return sum(tensor.numel() for tensor in tensors)

    def share(self, model: nn.Module) -> float:
        """The same as a share of a network's parameters."""
        return self.num_parameters / max(sum(parameter.numel() for parameter in model.parameters()), 1)

    def parts(self) -> dict[str, Part]:
        """What stands beside each matrix, by tensor."""
        names = dict.fromkeys((*self.scales, *self.low_rank))
        return {name: Part(self.scales.get(name), self.low_rank.get(name)) for name in names}

    def state_dict(self) -> dict[str, Tensor]:
        """All of it as one flat dict, which `safetensors.torch.save_file` takes."""
        by_kind: dict[str, Weights] = {
            "scales": self.scales,
            "low_rank_B": {name: pair[0] for name, pair in self.low_rank.items()},
            "low_rank_A": {name: pair[1] for name, pair in self.low_rank.items()},
            "replaced": self.replaced,
            "statistics": self.statistics,
        }
        return {
            f"{kind}.{name}": tensor.detach().contiguous()
            for kind, tensors in by_kind.items()
            for name, tensor in tensors.items()
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> "Beside":
        """What `state_dict` gave.

        Raises:
            InvalidConfig: for a dict of another kind.
        """
        by_kind: dict[str, dict[str, Tensor]] = {kind: {} for kind in _KINDS}
        for key, tensor in state.items():
            kind, _, name = key.partition(".")
            if kind not in by_kind or not name:
                raise InvalidConfig(
                    f"{key!r} is no name that stands beside a network; give what beside.state_dict() returned, whose "
                    f"names begin with {', '.join(_KINDS)}"
                )
            by_kind[kind][name] = tensor
        ups, downs = by_kind["low_rank_B"], by_kind["low_rank_A"]
        if ups.keys() != downs.keys():
            alone = sorted(ups.keys() ^ downs.keys())[0]
            raise InvalidConfig(f"{alone!r} has only one of B and A; give all of beside.state_dict()")
        return cls(
            by_kind["scales"],
            {name: (ups[name], downs[name]) for name in ups},
            by_kind["replaced"],
            by_kind["statistics"],
        )

    def wrap(self, model: nn.Module) -> nn.Module:
        """A copy of the network as received, with all this computed beside its layers.

        No noisy weight changes by a bit. `Linear`, `Conv1d` to `Conv3d`, `Embedding` and transformers' `Conv1D` run
        unchanged, and their outputs are scaled and added to. Other layers get a parametrisation, which keeps their
        weight as `original`.

        Args:
            model: the network as received, such as `observation.received`.

        Raises:
            InvalidWeights: if it lacks a tensor, or has it in another shape.
        """
        self.check_fits(model)
        wrapped = copy.deepcopy(model)
        put_beside(wrapped, self.parts(), self.replaced)
        _write(wrapped, self.statistics)
        return wrapped

    def merge(self, model: nn.Module) -> nn.Module:
        """A copy of the network as received with all this merged into its weights, as in `repaired.model`."""
        self.check_fits(model)
        merged = copy.deepcopy(model)
        parameters = dict(merged.named_parameters())
        _write(merged, {name: part.applied(parameters[name].detach()) for name, part in self.parts().items()})
        _write(merged, {**self.replaced, **self.statistics})
        return merged

    def save_peft(self, folder: Path | str, model: nn.Module, *, overwrite: bool = False) -> Path:
        """Write an adapter folder that `peft` loads onto the network as received; see `write_peft_folder`."""
        from quietnn.repairs.beside.peft_folder import write_peft_folder  # most repairs need no transformers

        self.check_fits(model)
        return write_peft_folder(Path(folder), self, model, overwrite=overwrite)

    def check_fits(self, model: nn.Module) -> None:
        """Refuse a network that lacks one of the tensors, or has it in another shape."""
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        named: dict[str, Part | Tensor] = {**self.parts(), **self.replaced, **self.statistics}
        missing = [name for name in named if name not in tensors]
        if missing:
            raise InvalidWeights(
                f"{missing[0]!r} is not a tensor of this model, and something stands beside it; its tensors are "
                f"{some_of(tensors)}: give the network as received, beside.wrap(observation.received)"
            )
        for name, one in named.items():
            check_kind(name, tensors[name])
            expected = tuple(tensors[name].shape)
            for told in _shapes(one, tensors[name]):
                if told != expected:
                    raise InvalidWeights(
                        f"what stands beside {name} is for shape {told}, and the model has {expected}; give the "
                        "network as received, beside.wrap(observation.received)"
                    )


def _shapes(one: Part | Tensor, weight: Tensor) -> list[tuple[int, ...]]:
    """The shapes that something fits beside, so far as it tells; that of the weight where it fits."""
    if isinstance(one, Tensor):
        return [tuple(one.shape)]
    shape, found = tuple(weight.shape), []
    if one.scale is not None:
        told = tuple(one.scale.shape)
        is_factor = len(told) == len(shape) and all(size in (1, other) for size, other in zip(told, shape, strict=True))
        found.append(shape if is_factor else told)
    if one.low_rank is not None:
        told = (one.low_rank[0].shape[0], one.low_rank[1].shape[1])
        found.append(shape if told == tuple(rows_of(weight).shape) else told)
    return found


@torch.no_grad()
def _write(network: nn.Module, values: Weights) -> None:
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    for name, value in values.items():
        tensors[name].copy_(value)


def beside_of(observation: Observation[Any, Any], model: nn.Module, added: Mapping[str, Part]) -> Beside:
    """What stands beside the weights as they arrived, where a repair left them as they are.

    Args:
        observation: what was repaired, with gain and offset undone.
        model: the repaired network: `part.applied` of each matrix, other parameters and buffers with any value.
        added: what stands beside each noisy matrix at unit gain; a matrix that is missing stays.
    """
    first = observation if observation.as_received is None else observation.as_received
    axes, parts = output_axes(observation.model), {}
    for name, weight in observation.weights.items():
        if weight.dim() > 1:
            gain, offset = of_tensor(first.gain, name), of_tensor(first.offset, name)
            parts[name] = added.get(name, Part()).behind(gain, offset, weight, axes[name])
    arrived = first.model
    before, buffers = dict(arrived.named_parameters()), dict(arrived.named_buffers())
    return Beside(
        {name: part.scale for name, part in parts.items() if part.scale is not None},
        {name: part.low_rank for name, part in parts.items() if part.low_rank is not None},
        _changed({name: one for name, one in model.named_parameters() if name not in parts}, before),
        _changed(dict(model.named_buffers()), buffers),
    )


def _changed(now: Weights, before: Weights) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in now.items() if not torch.equal(one, before[name])}
