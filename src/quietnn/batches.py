"""What networks are called with and what they return: taken in any form, refused where it comes in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from quietnn.errors import InvalidConfig, QuietnnError

Inputs = Tensor | Mapping[str, Tensor]
"""What a model is called with: one tensor, or keyword tensors; examples run along dimension 0."""


def call(model: nn.Module, inputs: Inputs) -> Any:
    """The output of a model for its inputs; where it cannot be run, an error tells their shapes and what torch says."""
    try:
        return model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AssertionError) as error:
        named = {"inputs": inputs} if isinstance(inputs, Tensor) else inputs
        told = ", ".join(f"{name} of shape {tuple(one.shape)} and {one.dtype}" for name, one in named.items())
        first = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
        weights = f" The network's weights are {first.dtype}." if first is not None else ""
        raise QuietnnError(
            f"the network cannot be run on {told}: {str(error).strip()[:300]}.{weights} Give inputs like those that it "
            "was trained with"
        ) from error


def logits_of(output: object) -> Tensor:
    """The tensor among what a network returned: itself, its `logits`, or the first of several.

    >>> logits_of({"logits": torch.ones(1), "hidden_states": None}), logits_of((torch.zeros(1), "more"))
    (tensor([1.]), tensor([0.]))
    """
    found = output
    if isinstance(found, Mapping):
        found = found.get("logits")
    elif not isinstance(found, Tensor) and hasattr(found, "logits"):
        found = found.logits
    elif isinstance(found, tuple | list):
        found = found[0] if found else None
    if isinstance(found, Tensor):
        return found
    if found is not None and found is not output:
        return logits_of(found)
    raise QuietnnError(
        f"the network returned a {type(output).__name__} in which no outputs were found; return a tensor, a tuple that "
        "starts with one, or something with logits"
    )


def outputs_of(model: nn.Module, inputs: Inputs) -> Tensor:
    """What a network makes of inputs: a tensor, the `logits` among several things, or the first of them."""
    return logits_of(call(model, inputs))


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients for a while; then every layer is in the mode that it was in."""
    modes = {layer: layer.training for layer in model.modules()}
    try:
        with torch.no_grad():  # not inference mode: a search's memory needs the versions of tensors
            model.eval()
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


def as_inputs(given: object) -> Inputs:
    """Inputs in any form as tensors: arrays become tensors, floats of 64 bits those of torch's default.

    >>> import numpy
    >>> as_inputs({"x": numpy.zeros((2, 3))})["x"].dtype
    torch.float32
    """
    if not isinstance(given, Mapping):
        return _as_examples(given, "inputs")
    if not given:
        raise InvalidConfig("inputs is an empty dict; give tensors by the names of the network's arguments")
    return {name: _as_examples(value, f"inputs[{name!r}]") for name, value in given.items()}


def _as_examples(given: object, what: str) -> Tensor:
    """A dense tensor whose first dimension counts examples."""
    if isinstance(given, nn.Module):
        raise InvalidConfig(f"{what} is a network; what arrived comes first: repair(model, inputs, labels)")
    if not hasattr(given, "__array__"):  # which tensors have too
        why = "leave it out" if given is None else "torch.as_tensor(...) makes one"
        raise InvalidConfig(
            f"{what} is a {type(given).__name__}, and a network is called with one tensor, or with a dict of "
            f"tensors by keyword; {why}"
        )
    tensor = as_tensor(given)
    if not tensor.dim():
        raise InvalidConfig(f"{what} is a single number; examples run along the first dimension of a tensor")
    if tensor.is_meta or tensor.layout is not torch.strided:
        kind = "on the meta device and has no values" if tensor.is_meta else f"{tensor.layout}, and not dense"
        raise InvalidConfig(f"{what} is {kind}; give a dense tensor with values")
    return tensor


def as_tensor(given: Any) -> Tensor:
    """An array or a tensor as a tensor; an array of doubles in torch's default precision."""
    if isinstance(given, Tensor):
        return given
    tensor = torch.as_tensor(given)
    return tensor.to(torch.get_default_dtype()) if tensor.dtype == torch.float64 else tensor


def parts_of_batch(batch: object) -> tuple[Inputs, object | None]:
    """Inputs and labels of what a loader yields: inputs, `(inputs, labels)`, or a dict with `labels` in it.

    >>> parts_of_batch({"x": torch.zeros(1, 2), "labels": torch.zeros(1)})[1]
    tensor([0.])
    """
    if isinstance(batch, Mapping):
        named = dict(batch)
        labels = named.pop("labels", None)
        return as_inputs(named), labels
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        if len(batch) not in (1, 2):
            raise InvalidConfig(
                f"a batch has {len(batch)} parts; give inputs, (inputs, labels), or a dict of tensors by keyword"
            )
        return as_inputs(batch[0]), batch[1] if len(batch) == 2 else None
    return as_inputs(batch), None


def joined(parts: Sequence[Inputs]) -> Inputs:
    """Batches of inputs as one.

    >>> joined([torch.zeros(2, 3), torch.zeros(1, 3)]).shape
    torch.Size([3, 3])
    """
    first = parts[0]
    try:
        if isinstance(first, Tensor):
            return torch.cat([part for part in parts if isinstance(part, Tensor)])
        return {name: torch.cat([part[name] for part in parts]) for name in first}  # type: ignore[index]
    except (RuntimeError, KeyError) as error:
        raise InvalidConfig(
            f"batches of inputs do not go together ({error}); pad them to one length, or give one batch"
        ) from error


def num_inputs(inputs: Inputs) -> int:
    """How many examples there are: the length of the shortest tensor."""
    return len(inputs) if isinstance(inputs, Tensor) else min(len(tensor) for tensor in inputs.values())


def check_finite(inputs: Inputs) -> None:
    """Refuse inputs that hold NaN or infinity."""
    for tensor in [inputs] if isinstance(inputs, Tensor) else inputs.values():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise QuietnnError("the inputs hold values that are not finite; repair or leave out those examples")


def take(inputs: Inputs, positions: Tensor | slice) -> Inputs:
    """The inputs at some positions."""
    if isinstance(inputs, Tensor):
        return inputs[positions]
    return {name: tensor[positions] for name, tensor in inputs.items()}


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


def _is_pair(inputs: object, labels: object) -> bool:
    """Whether two things are inputs and their class numbers rather than two batches."""
    return (
        hasattr(inputs, "shape")
        and hasattr(labels, "shape")
        and len(inputs.shape) > len(labels.shape) == 1
        and inputs.shape[0] == labels.shape[0]
    )


def _is_batch(one: object) -> bool:
    """Whether it is what a loader may yield, and not an example written as numbers."""
    first = one[0] if isinstance(one, Sequence) and one else one
    return isinstance(first, Mapping) or hasattr(first, "__array__")


@dataclass(frozen=True)
class InputsOf:
    """Batches of a loader without their labels."""

    loader: Iterable[Any]

    def __iter__(self) -> Iterator[Inputs]:
        return (parts_of_batch(batch)[0] for batch in self.loader)
