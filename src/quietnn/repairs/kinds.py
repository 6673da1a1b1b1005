"""Kinds of networks, as far as they decide what can be done to them."""

from typing import Any

from torch import nn

from quietnn.watching.survey import CONVOLUTIONS, BatchNorm, has_statistics
from quietnn.weights import NORMALISATION_TYPES, is_normalisation


def is_network(model: Any) -> bool:
    """Whether inputs can be run through it; not so for a state dict or a tensor."""
    return isinstance(model, nn.Module)


def stores_statistics(model: Any) -> bool:
    """Whether some layer normalises by statistics that it stores, whatever its kind.

    >>> stores_statistics(nn.BatchNorm1d(2)), stores_statistics(nn.LayerNorm(2))
    (True, False)
    """
    return is_network(model) and any(getattr(layer, "running_mean", None) is not None for layer in model.modules())


def stores_no_statistics(model: Any) -> bool:
    """A network without them."""
    return is_network(model) and not stores_statistics(model)


def has_stored_statistics(model: Any) -> bool:
    """Whether there is a BatchNorm with running statistics to calibrate."""
    return is_network(model) and any(has_statistics(layer) for layer in model.modules())


def has_kernels(model: Any) -> bool:
    """Whether there is a convolution to have a structured prior, and a BatchNorm to be calibrated."""
    return has_stored_statistics(model) and any(type(layer) in CONVOLUTIONS for layer in model.modules())


def normalises_each_input(layer: nn.Module, normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES) -> bool:
    """Whether a layer takes its statistics from each input afresh.

    >>> normalises_each_input(nn.LayerNorm(2)), normalises_each_input(nn.BatchNorm1d(2))
    (True, False)
    """
    stored = getattr(layer, "running_mean", None) is not None
    batch = "BatchNorm" in type(layer).__name__ or isinstance(layer, BatchNorm)
    return is_normalisation(layer, normalisation) and not stored and not batch


def normalises_inputs(model: Any, normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES) -> bool:
    """Whether layers normalise each input, and none by stored statistics, under which MMSE's factors compound."""
    return stores_no_statistics(model) and any(normalises_each_input(one, normalisation) for one in model.modules())


def is_transposed_linear(layer: nn.Module) -> bool:
    """Whether it is transformers' Conv1D, a linear layer whose outputs run along the columns."""
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")
