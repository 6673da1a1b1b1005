"""Inputs, labels and outputs: checked where they come in, so that no error comes from deep inside."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, QuietnnError

Inputs = Tensor | Mapping[str, Tensor]
"""What a model is called with: one tensor, or keyword tensors; examples run along dimension 0."""


def call(model: nn.Module, inputs: Inputs) -> Any:
    """The output of a model for its inputs, whatever kind of thing that is.

    Raises:
        QuietnnError: if the model cannot be run on them, with their shapes and kinds and what torch says.
    """
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


def as_inputs(given: object) -> Inputs:
    """Inputs in any form as tensors: arrays become tensors, floats of 64 bits those of torch's default.

    >>> import numpy
    >>> as_inputs({"x": numpy.zeros((2, 3))})["x"].dtype
    torch.float32
    """
    if isinstance(given, Mapping):
        return {name: _as_tensor(value, f"inputs[{name!r}]") for name, value in given.items()}
    return _as_tensor(given, "inputs")


def as_labels(given: object) -> Tensor:
    """Labels in any form as a tensor.

    >>> as_labels([0, 2])
    tensor([0, 2])
    """
    if isinstance(given, list | tuple) and all(isinstance(label, int) for label in given):
        return torch.tensor(given)
    if not isinstance(given, Tensor) and not hasattr(given, "__array__"):
        raise InvalidConfig(
            f"labels is a {type(given).__name__}, and a tensor is needed; torch.as_tensor(...) makes one of class "
            "numbers, for example labels=torch.tensor([0, 2, 1])"
        )
    return _as_tensor(given, "labels")


def _as_tensor(given: object, what: str) -> Tensor:
    if isinstance(given, Tensor):
        return given
    if isinstance(given, nn.Module):
        raise InvalidConfig(f"{what} is a network; what arrived comes first: repair(model, inputs, labels)")
    if not hasattr(given, "__array__"):
        why = "leave it out" if given is None else "torch.as_tensor(...) makes one"
        raise InvalidConfig(
            f"{what} is a {type(given).__name__}, and a network is called with one tensor, or with a dict of "
            f"tensors by keyword; {why}"
        )
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


def check_inputs(inputs: object) -> int:
    """How many examples there are: the length of the shortest tensor.

    Raises:
        InvalidConfig: if the inputs are neither a tensor nor tensors by keyword.

    >>> check_inputs({"images": torch.zeros(3, 2)})
    3
    """
    named: Mapping[object, object] = inputs if isinstance(inputs, Mapping) else {None: inputs}
    if not named:
        raise InvalidConfig("inputs is an empty dict; give tensors by the names of the network's arguments")
    lengths = []
    for name, tensor in named.items():
        what = "inputs" if name is None else f"inputs[{name!r}]"
        if tensor is None and name is not None:
            raise InvalidConfig(f"{what} is None, not a tensor; leave it out")
        if not isinstance(tensor, Tensor):
            raise InvalidConfig(
                f"{what} is a {type(tensor).__name__}, and a network is called with one tensor, or with a dict of "
                "tensors by keyword; torch.as_tensor(...) makes one"
            )
        if not tensor.dim():
            raise InvalidConfig(f"{what} is a single number; examples run along the first dimension of a tensor")
        if tensor.is_meta or tensor.layout is not torch.strided:
            kind = "on the meta device and has no values" if tensor.is_meta else f"{tensor.layout}, and not dense"
            raise InvalidConfig(f"{what} is {kind}; give a dense tensor with values")
        lengths.append(len(tensor))
    return min(lengths)


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


def check_labels(labels: object, num_inputs: int) -> Tensor:
    """Labels as cross-entropy takes them: class numbers in int64, or the probabilities of all classes.

    Args:
        labels: class numbers, shape (examples,) or with positions behind; or float, (examples, classes).
        num_inputs: how many examples the labels are for.

    Raises:
        InvalidConfig: if they are of another kind or number, or negative.

    >>> check_labels(torch.tensor([0, 2], dtype=torch.int32), 2)
    tensor([0, 2])
    """
    if not isinstance(labels, Tensor):
        raise InvalidConfig(f"labels is a {type(labels).__name__}; give a tensor, for example torch.as_tensor(labels)")
    shape = tuple(labels.shape)
    if not shape or len(labels) != num_inputs:
        raise InvalidConfig(f"{num_inputs} inputs do not go with labels of shape {shape}; give one for each")
    if len(shape) == 2 and shape[1] == 1:
        raise InvalidConfig(f"labels have shape {shape}; class numbers have shape ({num_inputs},): use labels[:, 0]")
    if labels.is_floating_point():
        if len(shape) == 1:
            raise InvalidConfig(f"labels are {labels.dtype}; class numbers are integers: use labels.long()")
        return _checked_probabilities(labels)
    if labels.is_complex() or labels.dtype == torch.bool:
        raise InvalidConfig(f"labels are {labels.dtype}; class numbers are integers: use labels.long()")
    if labels.numel() and int(labels.min()) < 0:
        raise InvalidConfig(
            f"the smallest label is {int(labels.min())}; class numbers start at 0, leave out examples without a label"
        )
    return labels.long()


def _checked_probabilities(labels: Tensor) -> Tensor:
    totals = labels.double().sum(1)
    if labels.numel() and not bool((labels >= 0).all() and (totals - 1).abs().max() < _ROUNDING):
        raise InvalidConfig(
            f"labels are {labels.dtype} of shape {tuple(labels.shape)} and not probabilities, which add up to "
            "1; inputs come before labels: repair(model, inputs, labels); for other targets give loss=..."
        )
    return labels


_ROUNDING = 0.01
"""By how much probabilities in 16 bits may fail to add up to 1."""


def check_outputs(outputs: Tensor, labels: Tensor) -> None:
    """Refuse outputs that are not one number for each class, and labels that are none of the classes.

    Args:
        outputs: of a classifier, (examples, classes, ...).
        labels: of these examples, as `check_labels` returns them.
    """
    expected = outputs.shape if labels.is_floating_point() else (*outputs.shape[:1], *outputs.shape[2:])
    if outputs.dim() < 2 or labels.shape != expected:
        raise InvalidConfig(
            f"the network's outputs have shape {tuple(outputs.shape)} for {len(labels)} labels; cross-entropy needs "
            "(examples, classes), for anything else give a loss of your own"
        )
    largest = int(labels.max()) if labels.numel() and not labels.is_floating_point() else 0
    if largest >= outputs.shape[1]:
        raise InvalidConfig(
            f"the largest label is {largest}, and the network has outputs for the classes 0 to "
            f"{outputs.shape[1] - 1}; give labels of the classes that it was trained for"
        )


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
