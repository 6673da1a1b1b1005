"""Weights read out of an aihwkit network, and the digital part of a repair put back; its arrays are never written.

A tile computes `y = alpha s (W x)`: `W` is in the array, `s` are its digital scales, `alpha` is drift compensation. The
plain twin has `alpha s W` as its weight. What a repair multiplies a row by goes back into the scales.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.analog.tiles import Tile, analog_layers, bias_of, tiles_of
from quietnn.channels.base import check_number, check_whole
from quietnn.channels.memories import PCM
from quietnn.channels.moments import ErrorMoments
from quietnn.channels.randomness import derive_seed, global_randomness
from quietnn.observation import Observation
from quietnn.targets import with_weights

_FEWEST_WEIGHTS = 20_000
"""Weights that the moments of a noise model are averaged over; a small tile is drawn several times."""

_LONGEST = 1e10
"""Seconds, 300 years: where the search for the age of a tile ends."""

_WITHIN_RANGE = 1 / 3
"""Standard deviation of the inputs of a readout, of the range of a tile's inputs: three of them fit."""


@torch.inference_mode(False)
@torch.no_grad()
def read_out(
    network: nn.Module, *, seconds: float | None = None, readouts: int = 0, seed: int = 0
) -> Observation[nn.Module, Any]:
    """What an aihwkit network holds, as an observation of a plain network.

    `repair(analog_network, ...)` calls it. The noise variance is that of the tiles' own noise model at their age.

    Args:
        network: made by `convert_to_analog`, programmed and drifted or not.
        seconds: since programming. Where it is not given, the factor of drift compensation tells it for phase-change
            memory; else the noise variance is None, and `auto` estimates it from BatchNorm.
        readouts: 0 takes the weights as the simulator holds them. 1 or more reads them so often through the noisy
            forward pass, as a chip does; the mean is taken, and its error is added to the noise variance.
        seed: of what is drawn.

    Raises:
        MissingData: if aihwkit is not installed.
        InvalidConfig: if there are no tiles.
    """
    layers = analog_layers(network)
    check_whole("readouts", readouts, 0, 10_000)
    if seconds is not None:
        check_number("seconds", seconds, 0, 1e12)
    elif programmed := [tile for layer in layers.values() for tile in tiles_of(layer) if tile.is_programmed]:
        seconds = _age(max(programmed, key=lambda tile: tile.stored.numel()))
    noise: dict[str, Tensor] = {}
    gain: dict[str, float] = {}
    weights: dict[str, Tensor] = {}
    for name, layer in layers.items():
        key = f"{name}.weight" if name else "weight"
        tiles = list(tiles_of(layer))
        shape = max(tile.rows.stop for tile in tiles), max(tile.columns.stop for tile in tiles)
        weights[key], noise[key] = torch.empty(shape), torch.zeros(shape)
        gains = []
        for number, tile in enumerate(tiles):
            at = tile.rows, tile.columns
            weights[key][at], error = _read(tile, readouts, derive_seed(seed, f"readout:{key}", number))
            found = _moments(tile, seconds, derive_seed(seed, f"moments:{key}", number))
            if found is None:
                noise[key][at] = math.nan
                continue
            gains.append(found[0])
            noise[key][at] = found[1] * tile.scales.square()[:, None] + error
        gain[key] = sum(gains) / len(gains) if gains else 1.0
    twin = _twin(network, weights)
    told: Any = noise
    if any(bool(variance.isnan().any()) for variance in noise.values()):
        told, gain = None, dict.fromkeys(weights, 1.0)
    else:
        told = {key: variance.view_as(dict(twin.named_parameters())[key]) for key, variance in noise.items()}
    return Observation(twin, told, gain=gain, offset=dict.fromkeys(weights, 0.0), noisy=tuple(weights))


def _twin(network: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """The plain network of the same names, in evaluation mode."""
    from aihwkit.nn.conversion import convert_to_digital

    twin: nn.Module = convert_to_digital(network).eval()
    parameters = dict(twin.named_parameters())
    shaped = {key: weight.to(parameters[key]).view_as(parameters[key]) for key, weight in weights.items()}
    with_weights(twin, shaped, in_place=True)
    for name, layer in analog_layers(network).items():
        bias = bias_of(layer)
        if bias is not None:
            parameters[f"{name}.bias" if name else "bias"].copy_(bias)
    return twin


def _read(tile: Tile, readouts: int, seed: int) -> tuple[Tensor, Tensor | float]:
    """The logical weights of a tile, and the variance of the readout's own error."""
    if not readouts:
        return tile.stored * (tile.scales * tile.compensation)[:, None], 0.0
    size = tile.columns.stop - tile.columns.start
    found = []
    with global_randomness():
        torch.manual_seed(seed)
        for _ in range(readouts):
            inputs = torch.randn(10 * size, size)
            if tile.tile.input_range is not None:
                inputs = inputs * (_WITHIN_RANGE * float(tile.tile.input_range))
            found.append(tile.tile.read_weights(apply_weight_scaling=True, x_values=inputs)[0])
    read = torch.stack(found)
    if readouts == 1:
        return read[0], 0.0
    return read.mean(dim=0), float(read.var(dim=0).mean()) / readouts


def _moments(tile: Tile, seconds: float | None, seed: int) -> tuple[float, float] | None:
    """Gain, and noise variance in units of the array, by the tile's own noise model; None where its age is not known.

    The gain is what is left of a weight behind drift compensation. What was written is put at what is stored over the
    gain, and not above the weight that the mapping gives the largest conductance.
    """
    if not tile.is_programmed:
        return 1.0, 0.0
    if seconds is None:
        return None
    config = tile.tile.rpu_config
    compensation, stored = float(tile.compensation.mean()), tile.stored
    gain = _drawn(config.noise_model, stored, seconds, seed).gain
    largest = float(config.mapping.weight_scaling_omega) or math.inf
    written = (stored / gain).clamp(-largest, largest)
    return gain * compensation, _drawn(config.noise_model, written, seconds, seed).noise_variance


def _drawn(model: Any, written: Tensor, seconds: float, seed: int) -> ErrorMoments:
    """The moments of one draw of a noise model."""
    targets = written.repeat(max(1, math.ceil(_FEWEST_WEIGHTS / written.numel())), 1)
    with global_randomness():
        torch.manual_seed(seed)
        drawn = model.apply_noise(targets, seconds) if seconds > 0 else model.apply_programming_noise(targets)[0]
    return ErrorMoments.of(targets, drawn)


def _age(tile: Tile) -> float | None:
    """The age at which phase-change memory has lost what compensation gives back, by bisection in the logarithm."""
    config = tile.tile.rpu_config
    if getattr(config, "drift_compensation", None) is None or type(config.noise_model).__name__ != "PCMLikeNoiseModel":
        return None
    stored, lost = tile.stored, 1.0 / float(tile.compensation.mean())
    low, high = 0.0, math.log1p(_LONGEST)
    for _ in range(24):
        middle = (low + high) / 2
        memory = PCM(math.expm1(middle), drift=float(config.noise_model.drift_scale))
        low, high = (middle, high) if memory.predict(stored).gain > lost else (low, middle)
    return math.expm1(low)
