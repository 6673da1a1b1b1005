"""Inputs that come in batches: datasets, loaders and other collections that can be read more than once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from quietnn.batches import Inputs, parts_of_batch
from quietnn.errors import InvalidConfig


@dataclass(frozen=True)
class InputsOf:
    """Batches of a loader without their labels."""

    loader: Iterable[Any]

    def __iter__(self) -> Iterator[Inputs]:
        return (parts_of_batch(batch)[0] for batch in self.loader)


def _is_pair(inputs: object, labels: object) -> bool:
    """Whether two things are inputs and their class numbers rather than two batches."""
    return (
        hasattr(inputs, "shape")
        and hasattr(labels, "shape")
        and len(inputs.shape) > len(labels.shape) == 1
        and inputs.shape[0] == labels.shape[0]
    )


def loader_of(inputs: object, batch_size: int) -> Iterable[Any] | None:
    """Something that yields batches each time it is read; None where inputs are in memory."""
    if isinstance(inputs, Tensor | Mapping) or hasattr(inputs, "__array__"):
        return None
    if hasattr(inputs, "inputs") and hasattr(inputs, "labels"):
        raise InvalidConfig(
            f"inputs is an {type(inputs).__name__}; write repair(model, examples.inputs, examples.labels)"
        )
    if isinstance(inputs, IterableDataset):
        raise InvalidConfig("an IterableDataset has no end that is known; give DataLoader(dataset, batch_size=...)")
    if isinstance(inputs, Dataset):
        return DataLoader(inputs, batch_size=batch_size)
    if isinstance(inputs, str | bytes | nn.Module) or not isinstance(inputs, Iterable):
        return None  # as_inputs says what is wrong with it
    if isinstance(inputs, Iterator):
        raise InvalidConfig(
            f"inputs is a {type(inputs).__name__}, which can be read once only; give a list of batches, list(inputs), "
            "or a DataLoader"
        )
    if isinstance(inputs, tuple) and len(inputs) == 2 and _is_pair(*inputs):
        raise InvalidConfig(
            "inputs is a pair of inputs and labels; give both by themselves: repair(model, inputs, labels)"
        )
    if isinstance(inputs, Sequence) and not inputs:
        raise InvalidConfig("inputs hold no batch; give about a hundred examples, torch.stack(examples) or a loader")
    if isinstance(inputs, Sequence) and not _is_batch(inputs[0]):
        return None
    return inputs


def _is_batch(one: object) -> bool:
    """Whether it is what a loader may yield, and not an example written as numbers."""
    first = one[0] if isinstance(one, Sequence) and one else one
    return isinstance(first, Mapping) or hasattr(first, "__array__")
