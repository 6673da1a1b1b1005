"""What a wrapped strategy remembers from round to round, as plain tensors and back: momentum, Adam's moments."""

from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy
from torch import Tensor

_RECORD, _DICT, _LIST = "record", "dict", "list"


def remembered(strategy: Strategy) -> dict[str, Tensor]:
    """Every collection of arrays among the strategy's attributes, as `attribute/kind/place/name`.

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
