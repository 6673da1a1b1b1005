"""Between Flower's records and state dicts, and what a wrapped strategy remembers as plain tensors and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from quietnn.weights import Weights

_RECORD, _DICT, _LIST = "record", "dict", "list"


def to_state(arrays: ArrayRecord) -> dict[str, Tensor]:
    """The tensors of a record, each with memory of its own."""
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


def to_arrays(state: Weights, *, wide: bool = False) -> ArrayRecord:
    """A state dict as Flower sends it; `wide` ones are doubles, of which a mean of equal ones is exact.

    >>> {name: tensor.tolist() for name, tensor in to_state(to_arrays({"fc.weight": torch.tensor([1.0, 2.0])})).items()}
    {'fc.weight': [1.0, 2.0]}
    """
    tensors = {name: tensor.double() if wide else tensor for name, tensor in state.items()}
    return ArrayRecord({name: Array(one.detach().cpu().contiguous().numpy()) for name, one in tensors.items()})


def in_kind(arrays: ArrayRecord, like: Weights) -> dict[str, Tensor]:
    """The tensors of a record in the types they had before a strategy computed with them; counters are rounded."""
    return {
        name: (tensor if like[name].is_floating_point() else tensor.round()).to(like[name].dtype).view(like[name].shape)
        for name, tensor in to_state(arrays).items()
    }


def flat(metrics: MetricRecord | Mapping[str, object] | None) -> dict[str, object]:
    """Metrics as entries of a record: dashes in names become underscores."""
    return {} if metrics is None else {key.replace("-", "_"): value for key, value in metrics.items()}


def remembered(strategy: Strategy) -> dict[str, Tensor]:
    """Every collection of arrays (momentum, Adam's moments) that a strategy has, as `attribute/kind/place/name`.

    That is how Flower's own strategies keep their state; one that keeps it otherwise starts afresh after a restart.
    """
    return {
        f"{attribute}/{kind}/{place:06d}/{name}": torch.from_numpy(np.array(array))
        for attribute, value in vars(strategy).items()
        for place, (kind, name, array) in enumerate(_arrays_in(value))
    }


def remind(strategy: Strategy, memory: dict[str, Tensor]) -> None:
    """Give a fresh strategy what `remembered` found in an older one."""
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for key in sorted(memory):  # the order of arrays matters to some strategies, and files do not keep it
        attribute, kind, _, name = key.split("/", 3)
        found.setdefault((attribute, kind), {})[name] = memory[key].numpy()
    for (attribute, kind), arrays in found.items():
        setattr(strategy, attribute, _collection(kind, arrays))


def _arrays_in(value: Any) -> list[tuple[str, str, np.ndarray]]:
    if isinstance(value, ArrayRecord):
        return [(_RECORD, name, array.numpy()) for name, array in value.items()]
    if isinstance(value, dict) and all(isinstance(item, np.ndarray | np.generic) for item in value.values()):
        return [(_DICT, str(name), np.asarray(item)) for name, item in value.items()]
    if isinstance(value, list) and all(isinstance(item, np.ndarray | np.generic) for item in value):
        return [(_LIST, str(place), np.asarray(item)) for place, item in enumerate(value)]
    return []


def _collection(kind: str, arrays: dict[str, np.ndarray]) -> Any:
    if kind == _RECORD:
        return ArrayRecord({name: Array(array) for name, array in arrays.items()})
    if kind == _LIST:
        return list(arrays.values())
    return arrays
