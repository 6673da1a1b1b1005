"""A network that computes as an analog chip does: with converters, and with fresh noise on every call."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.analog.converter import Converter
from quietnn.channels.randomness import check_seed, generator_for
from quietnn.errors import InvalidConfig, QuietnnError, check_is
from quietnn.targets import some_of
from quietnn.watching.survey import CONVOLUTIONS
from quietnn.weights import Weights

LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, *CONVOLUTIONS)
"""The layers that arrays compute. Kinds are compared exactly: a child class may do something else with its weights."""


class Array:
    """What a layer on hardware runs in place of its own `forward`.

    Gradients pass through rounding as if it were not there, and stop where something is clipped.

    Attributes:
        layer: holds weight and bias, and all else that it had.
        converter: its converters.
        input_range: the largest input.
        unit: what a weight of 1 stands for, by array and output.
        seed: of the noise.
        name: of the layer, which has noise of its own.
        num_calls: so far; every call has noise of its own.
    """

    def __init__(self, layer: nn.Module, name: str, converter: Converter, unit: Tensor, seed: int) -> None:
        self.layer: Any = layer
        self.name, self.converter, self.unit, self.seed = name, converter, unit, seed
        self.input_range = converter.input_range
        self.num_calls = 0

    def __call__(self, inputs: Tensor) -> Tensor:
        generator = generator_for(self.seed, f"array:{self.name}", self.num_calls)
        self.num_calls += 1
        outputs = self._sum(self.converted(inputs), generator)
        return outputs if self.layer.bias is None else outputs + self._by_output(self.layer.bias, outputs)

    def noiseless(self, inputs: Tensor) -> Tensor:
        """What comes out, less the bias, if noise alone is left out."""
        return self._sum(self.converted(inputs), None)

    def exact(self, inputs: Tensor) -> Tensor:
        """What the layer itself makes, less its bias."""
        return self._multiply(inputs, self.layer.weight)

    def noise_variance(self, inputs: Tensor) -> Tensor:
        """The variance of what noise adds to each output at these inputs; rounding of outputs is not in it."""
        power = (self.converted(inputs) / self._scale).square()
        found: Tensor | None = None
        for unit, part in zip(self.unit, self._parts(self.layer.weight), strict=True):
            read = self.converter.read_noise**2 * self._multiply(power, part.abs())
            own = self._by_output(unit, read) * self._scale**2
            added = own * (read + self.converter.output_noise**2 * self._by_output(unit, read))
            found = added if found is None else found + added
        assert found is not None  # there is one array at least
        return found

    def converted(self, inputs: Tensor) -> Tensor:
        """Inputs behind their converter."""
        if not self.input_range:
            return inputs
        return self.input_range * _rounded(inputs / self.input_range, self.converter.input_step, 1.0)

    @property
    def _scale(self) -> float:
        return self.input_range or 1.0

    def _sum(self, inputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """The outputs of all arrays of the layer."""
        weight: Tensor = self.layer.weight
        total: Tensor | None = None
        for unit, part in zip(self.unit, self._parts(weight), strict=True):
            outputs = self._output(inputs, part, unit, generator)
            total = outputs if total is None else total + outputs
        assert total is not None  # there is one array at least
        return total

    def _output(self, inputs: Tensor, weight: Tensor, unit: Tensor, generator: torch.Generator | None) -> Tensor:
        """The output of one array."""
        product = self._multiply(inputs, weight)
        one = self._by_output(unit, product)
        outputs = product / (one * self._scale)
        converter = self.converter
        if generator is not None:
            variance: Tensor | float = converter.output_noise**2
            if converter.read_noise:
                power = self._multiply((inputs.detach() / self._scale).square(), weight.detach().abs())
                variance = variance + converter.read_noise**2 * power / one
            if isinstance(variance, Tensor) or variance:
                noise = torch.randn(outputs.shape, generator=generator, dtype=torch.float32).to(outputs)
                outputs = outputs + noise * torch.as_tensor(variance, dtype=outputs.dtype).sqrt()
        if converter.output_range:
            outputs = _rounded(outputs, converter.output_step, converter.output_range)
        return outputs * (one * self._scale)

    def _parts(self, weight: Tensor) -> Iterator[Tensor]:
        return parts_of(weight, self.converter.num_tiles(weight[0].numel()))

    def _multiply(self, inputs: Tensor, weight: Tensor) -> Tensor:
        if isinstance(self.layer, nn.Linear):
            return nn.functional.linear(inputs, weight)
        outputs: Tensor = self.layer._conv_forward(inputs, weight, None)
        return outputs

    def _by_output(self, values: Tensor, outputs: Tensor) -> Tensor:
        """One value for each output, in a shape that broadcasts."""
        if isinstance(self.layer, nn.Linear):
            return values.to(outputs)
        return values.to(outputs).view(-1, *[1] * len(self.layer.kernel_size))


def on_hardware(
    model: nn.Module,
    converter: Converter | str = "8-bit",
    *,
    ranges: Mapping[str, float] | None = None,
    units: Weights | None = None,
    seed: int = 0,
) -> nn.Module:
    """A copy of a network whose linear and convolution layers compute as analog arrays do.

    Names, weights and kinds of layers stay, so every repair takes the copy for what it is. The noise of a call depends
    on the seed, the layer's name and how often it was called: a run can be repeated. Of a network that is on hardware
    already, the copy has these settings, and keeps its ranges and units.

    Args:
        model: the network.
        converter: the converters, or the name of a preset: `"8-bit"`.
        ranges: the largest input by layer name, see `calibrate_ranges`; others have the converter's.
        units: by name of a weight, what a weight of 1 stands for in each output: the largest weight that was written
            times every factor behind the converter, such as that of drift compensation. The largest weights of the
            network, where it is not given.
        seed: of the noise.

    Raises:
        InvalidConfig: if a name is of no layer, a range is not positive, or the network has no such layer.

    >>> model, inputs = nn.Linear(4, 2), torch.ones(1, 4)
    >>> chip, same = (on_hardware(model, "7-9-bit", seed=1) for _ in range(2))
    >>> first = chip(inputs)
    >>> torch.equal(first, chip(inputs)), torch.equal(first, same(inputs))
    (False, True)
    """
    check_is(model, nn.Module, "model", "give a network: on_hardware(model, '8-bit')")
    check_seed(seed)
    if isinstance(converter, str):
        converter = Converter.named(converter)
    check_is(converter, Converter, "converter", "give analog.Converter(...), or the name of a preset: '8-bit'")
    result = copy.deepcopy(model)
    layers = {name: layer for name, layer in result.named_modules() if type(layer) in LAYERS}
    if not layers:
        raise InvalidConfig(
            f"there is no linear or convolution layer in this {type(model).__name__} to put on an array"
        )
    _check_names("ranges", ranges or {}, layers)
    _check_names("units", units or {}, {f"{name}.weight" if name else "weight" for name in layers})
    for name, layer in layers.items():
        weight: Any = layer.weight
        known = array_of(layer)
        unit = (units or {}).get(f"{name}.weight" if name else "weight", None if known is None else known.unit)
        num_tiles = converter.num_tiles(weight[0].numel())
        array = Array(layer, name, converter, _checked_unit(name, unit, weight.detach(), num_tiles), seed)
        if known is not None:
            array.input_range = known.input_range
        if ranges and name in ranges:
            array.input_range = _checked_range(name, ranges[name])
        layer.forward = array
    return result


def array_of(layer: nn.Module) -> Array | None:
    """What a layer on hardware runs; None of any other layer."""
    found = layer.__dict__.get("forward")
    return found if isinstance(found, Array) else None


def is_on_hardware(network: nn.Module) -> bool:
    """Whether any layer runs as an array."""
    return any(array_of(layer) is not None for layer in network.modules())


def arrays(network: nn.Module) -> dict[str, Array]:
    """The arrays of a network by layer name.

    Raises:
        QuietnnError: if there is none.
    """
    found = {name: array for name, layer in network.named_modules() if (array := array_of(layer)) is not None}
    if not found:
        raise QuietnnError("this network is not on hardware; put it there first: on_hardware(model, '8-bit')")
    return found


def parts_of(weight: Tensor, num_tiles: int) -> Iterator[Tensor]:
    """The weights of each of several arrays, with zeros in place of the others'.

    >>> [part.tolist() for part in parts_of(torch.tensor([[1.0, 2.0, 3.0]]), 2)]
    [[[1.0, 2.0, 0.0]], [[0.0, 0.0, 3.0]]]
    """
    if num_tiles == 1:
        yield weight
        return
    width = weight[0].numel()
    for columns in torch.arange(width).tensor_split(num_tiles):
        mask = torch.zeros(width, dtype=weight.dtype, device=weight.device)
        mask[columns] = 1.0
        yield weight * mask.view(1, *weight.shape[1:])


def largest_by_output(weight: Tensor, num_tiles: int = 1) -> Tensor:
    """The largest weight of each array and output, and 1 where all are zero.

    >>> largest_by_output(torch.tensor([[1.0, -3.0], [0.0, 0.0]]))
    tensor([[3., 1.]])
    """
    largest = torch.stack([part.flatten(1).abs().amax(dim=1) for part in parts_of(weight.detach(), num_tiles)])
    return torch.where(largest > 0, largest, torch.ones_like(largest))


def _rounded(values: Tensor, step: float, end: float) -> Tensor:
    """Values on a grid, held at its ends; the gradient is that of values that are held alone."""
    if step:
        values = values + ((values.detach() / step).round() * step - values.detach())
    return values.clamp(-end, end)


def _check_names(what: str, given: Mapping[str, Any], known: Any) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidConfig(f"{what} names {unknown[0]!r}, which no array computes; its names are {some_of(known)}")


def _checked_range(name: str, value: float) -> float:
    if not value > 0 or value == float("inf"):
        raise InvalidConfig(f"the input range of {name!r} is {value}; it must be positive: ranges={{{name!r}: 3.0}}")
    return float(value)


def _checked_unit(name: str, unit: Tensor | None, weight: Tensor, num_tiles: int) -> Tensor:
    if unit is None:
        return largest_by_output(weight, num_tiles)
    unit, num_outputs = torch.as_tensor(unit).detach(), len(weight)
    fits = (
        unit.dim() <= 2
        and unit.shape[-1:] in ((), (1,), (num_outputs,))
        and unit.shape[:-1] in ((), (1,), (num_tiles,))
    )
    if not fits or not bool((unit > 0).all()):
        raise InvalidConfig(
            f"the units of {name!r} have shape {tuple(unit.shape)}; give {num_outputs} positive numbers, one an output"
        )
    return unit.expand(num_tiles, num_outputs).clone()
