"""The tiles of an aihwkit network: where each holds a layer's weights, and what stands behind it in digital."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, MissingData


@dataclass(frozen=True)
class Tile:
    """One tile of a layer, and the rows and columns of the layer's weight that it holds.

    Attributes:
        tile: aihwkit's own object.
        rows: outputs of the layer.
        columns: inputs of the layer, as `weight.flatten(1)` counts them.
    """

    tile: Any
    rows: slice
    columns: slice

    @property
    def stored(self) -> Tensor:
        """The weights in the array, in its own units."""
        weights: Tensor = self.tile.tile.get_weights()
        return weights.detach().clone()

    @property
    def scales(self) -> Tensor:
        """What digital scales multiply each output by, drift compensation aside."""
        found = self.tile.get_scales()
        size = self.rows.stop - self.rows.start
        return torch.ones(size) if found is None else found.detach().cpu().flatten().expand(size).clone()

    @property
    def compensation(self) -> Tensor:
        """What drift compensation multiplies each output by, in evaluation mode."""
        size = self.rows.stop - self.rows.start
        if getattr(self.tile.rpu_config, "drift_compensation", None) is None:
            return torch.ones(size)
        alpha: Tensor = self.tile.alpha
        return alpha.detach().cpu().flatten().expand(size).clone()

    @property
    def is_programmed(self) -> bool:
        """Whether the noise model has written the weights; before that they are exact."""
        return self.tile.programmed_weights is not None

    def multiply(self, factors: Tensor) -> None:
        """Multiply each output by a factor in digital; the array stays as it is."""
        own = self.tile.out_scaling_alpha
        if own is not None and own.numel() == len(factors):
            with torch.no_grad():
                own.mul_(factors.to(own).view_as(own))
            return
        scales = self.tile.mapping_scales
        before = torch.ones(1) if scales is None else scales.detach().flatten()
        self.tile.mapping_scales = (before * factors.to(before)).clone()


def analog_layers(network: nn.Module) -> dict[str, Any]:
    """The layers of a network that aihwkit holds in tiles, by name.

    Raises:
        MissingData: if aihwkit is not installed.
        InvalidConfig: if the network has no such layer.
    """
    try:
        import aihwkit.nn  # noqa: F401 - what follows knows its layers by what they hold
    except ImportError as error:
        raise MissingData(
            f"aihwkit cannot be imported ({error}); pip install --no-deps aihwkit==1.1.0, or give what was read from "
            "the chip: from_readouts(model, readouts, memory=...)"
        ) from error
    found = {name: layer for name, layer in network.named_modules() if hasattr(layer, "analog_module")}
    if not found:
        raise InvalidConfig(
            f"there are no analog tiles in this {type(network).__name__}; convert it first: "
            "convert_to_analog(model, TorchInferenceRPUConfig())"
        )
    return found


def tiles_of(layer: Any) -> Iterator[Tile]:
    """The tiles of one layer: one, or an array of them."""
    module = layer.analog_module
    if not hasattr(module, "array"):
        yield Tile(module, slice(0, module.out_size), slice(0, module.in_size))
        return
    column = 0
    for width, tiles in zip(module.in_sizes, module.array, strict=True):
        row = 0
        for height, tile in zip(module.out_sizes, tiles, strict=True):
            yield Tile(tile, slice(row, row + height), slice(column, column + width))
            row += height
        column += width


def bias_of(layer: Any) -> Tensor | None:
    """The digital bias of a layer, which is added behind its tiles."""
    found: Tensor | None = layer.analog_module.bias
    return found
