"""The input range of every array, fitted to a few inputs.

A wide range clips nothing, but its steps are coarse, and the noise of an output grows with it: noise is fixed in units
of the array, where the largest input is 1. The range of the smallest error is looked for layer by layer,

    error = E[(y_hat - y)^2 + noise variance] / Var[y],      averaged over outputs,

with `y` what the layer makes of the same inputs without converters. Each output counts by its own variance, because a
normalisation behind it undoes its scale.
"""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.analog.hardware import Array, arrays
from quietnn.batches import call
from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import Evidence, some_inputs
from quietnn.watching.makers import eagerly, undisturbed

BY = ("error", "largest")
"""How a range is chosen; or a number, the share of inputs that it holds."""

FIXED = "fixed"
"""In an experiment: the range of the converter for every layer, as before any calibration."""

_STEPS_PER_HALVING, _NUM_STEPS = 3, 24
"""Ranges that are tried: down to 1/200 of the largest input."""

_MOST_INPUTS = 32
"""Inputs that the search for one range runs the layer on."""

_MOST_VALUES = 2**22
"""Values that a quantile is taken of; more are thinned out evenly."""


@torch.inference_mode(False)
@torch.no_grad()
def calibrate_ranges(network: nn.Module, inputs: object, *, by: str | float = "error") -> nn.Module:
    """A copy of a network on hardware whose input ranges fit the inputs.

    One pass: each layer is fitted to what the fitted layers in front of it send.

    Args:
        network: made by `on_hardware`.
        inputs: about a hundred, in any form of `Evidence`; no labels.
        by: `"error"` for the smallest error of each layer's outputs, `"largest"` for a range that clips nothing, or the
            share of inputs that it holds: 0.999.

    Returns:
        The copy. `{name: array.input_range for name, array in arrays(copy).items()}` are the ranges.

    >>> from quietnn.analog.hardware import on_hardware
    >>> chip = calibrate_ranges(on_hardware(nn.Linear(2, 1)), torch.tensor([[0.5, -2.0]]), by="largest")
    >>> chip.forward.input_range
    2.0
    """
    if not (by in BY or (isinstance(by, float) and 0.0 < by <= 1.0)):
        raise InvalidConfig(f"by is {by!r}; give 'error', 'largest' or a share of the inputs: by=0.999")
    check_is(network, nn.Module, "network", "give a network on hardware: calibrate_ranges(on_hardware(model), inputs)")
    evidence = some_inputs(inputs, "calibrate_ranges")
    result = copy.deepcopy(network)

    def fit(name: str, array: Array, given: Tensor) -> None:
        array.input_range = _range_of(array, given, by)

    visit_arrays(result, evidence, fit)
    return result


def visit_arrays(network: nn.Module, evidence: Evidence, visit: Callable[[str, Array, Tensor], None]) -> None:
    """Run a network on hardware once; each array is shown what it is about to be given."""
    with ExitStack() as hooks:
        for name, array in arrays(network).items():

            def before(layer: nn.Module, args: tuple[Any, ...], name: str = name, array: Array = array) -> None:
                visit(name, array, args[0])

            hooks.enter_context(array.layer.register_forward_pre_hook(before))
        with undisturbed(network), eagerly(network):
            call(network, evidence.first(evidence.batch_size))


def _range_of(array: Array, inputs: Tensor, by: str | float) -> float:
    magnitudes = inputs.abs()
    largest = float(magnitudes.max())
    if not largest:
        return array.input_range
    if by == "largest":
        return largest
    if isinstance(by, float):
        flat = magnitudes.flatten()
        return float(flat[:: -(-flat.numel() // _MOST_VALUES)].float().quantile(by)) or largest
    few = inputs[:_MOST_INPUTS]
    wanted, before = array.exact(few), array.input_range
    tried = {}
    for step in range(_NUM_STEPS):
        array.input_range = largest * 2.0 ** (-step / _STEPS_PER_HALVING)
        tried[array.input_range] = _error(array, few, wanted)
    array.input_range = before
    return min(tried, key=tried.__getitem__)


def _error(array: Array, inputs: Tensor, wanted: Tensor) -> float:
    """The squared error of an output over its variance, averaged over the outputs that vary."""
    errors = (array.noiseless(inputs) - wanted).square() + array.noise_variance(inputs)
    dim = -1 if isinstance(array.layer, nn.Linear) else 1
    by_output = errors.movedim(dim, 0).flatten(1).double().mean(dim=1)
    variance = wanted.movedim(dim, 0).flatten(1).double().var(dim=1, correction=0)
    varies = variance > 0
    return float((by_output[varies] / variance[varies]).mean()) if bool(varies.any()) else float(by_output.mean())
