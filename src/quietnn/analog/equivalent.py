"""Noise of the computation, told in the terms that repairs know: as noise of weights.

A BatchNorm must count the noise that is there when the network is used, for what stands behind it was trained on inputs
of the size that it makes. Fresh noise of variance `s` on an output leaves its mean and adds `s` to its variance. Noise
of variance `t` on the weights adds `t tr(C)`, with `C` the covariance of the layer's inputs. So

    t = s / tr(C)

is weight noise of the same effect, and calibration then predicts the variance of every layer, the noise that earlier
layers send included. `s` has three parts, all known: output noise, read noise, and rounding, `step^2 / 12`.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.analog.hardware import Array, arrays, on_hardware
from quietnn.analog.ranges import FIXED, calibrate_ranges, visit_arrays
from quietnn.channels.conductance import Memory
from quietnn.evidence import some_inputs
from quietnn.noise import noise_of_each
from quietnn.observation import Gain, Observation, observe, of_tensor
from quietnn.targets import noisy_weights


@torch.inference_mode(False)
@torch.no_grad()
def with_converter_noise(what: object, inputs: object, **noise: Any) -> Observation[Any, Any]:
    """An observation of a network on hardware, with the noise of its converters in the noise variance.

    Args:
        what: a network made by `on_hardware`, or an observation of one.
        inputs: about a hundred, in any form of `Evidence`; no labels.
        **noise: `noise_variance` or `wnr_db` of the weights, as in `observe`; 0 where nothing is told.

    >>> chip = on_hardware(nn.Linear(4, 2), "8-bit")
    >>> with_converter_noise(chip, torch.rand(20, 4)).mean_noise_variance > 0
    True
    """
    observation = observe(what, **noise)
    if observation.noise_variance is None:
        observation = observation.with_noise(0.0)
    found = noise_of_each(observation.known_noise, observation.weights)
    network = copy.deepcopy(observation.model)
    added: dict[str, Tensor] = {}

    def measure(name: str, array: Array, given: Tensor) -> None:
        added[f"{name}.weight" if name else "weight"] = _equivalent(array, given)

    visit_arrays(network, some_inputs(inputs, "with_converter_noise"), measure)
    return observation.with_noise({name: own + added.get(name, 0.0) for name, own in found.items()})


def _equivalent(array: Array, inputs: Tensor) -> Tensor:
    """`s / tr(C)` of a layer's outputs, in a shape that broadcasts to its weight."""
    is_linear = isinstance(array.layer, nn.Linear)
    outputs = array.noise_variance(inputs).movedim(-1 if is_linear else 1, 0).flatten(1).double().mean(dim=1)
    rounding = (array.converter.output_step * (array.input_range or 1.0)) ** 2 / 12
    noise = outputs + rounding * array.unit.double().square().sum(dim=0)
    weight: Tensor = array.layer.weight
    variances = inputs.movedim(-1 if is_linear else 1, 0).flatten(1).double().var(dim=1, correction=0)
    trace = float(variances.mean()) * weight[0].numel()
    return (noise / trace if trace else torch.zeros_like(noise)).to(weight.dtype).view(-1, *[1] * (weight.dim() - 1))


def observed_on_hardware(
    observation: Observation[Any, Any],
    converter: str,
    inputs: object,
    *,
    written: tuple[nn.Module, object],
    by: str | float = "error",
    seed: int = 0,
) -> Observation[Any, Any]:
    """What arrived, as it computes on hardware with calibrated ranges, and with the noise of that told.

    `written` is the network with the weights that a memory was told to hold, and the memory, or another channel. What
    arrived is also there at its own gain.
    """
    at_unit_gain = observation.at_unit_gain()
    model, channel = written
    lost: Gain = 1.0
    if isinstance(channel, Memory):
        lost = {name: channel.predict(weight).gain for name, weight in noisy_weights(model).items()}
    units = units_of(model, lost, converter=converter)
    chip = on_hardware(at_unit_gain.model, converter, units=units, seed=seed)
    if by != FIXED:
        chip = calibrate_ranges(chip, inputs, by=by)
    ranges = {name: array.input_range for name, array in arrays(chip).items() if array.input_range}
    own = {name: unit * of_tensor(observation.gain, name) for name, unit in units.items()}
    at_own_gain = on_hardware(observation.model, converter, ranges=ranges, units=own, seed=seed)
    return with_converter_noise(at_unit_gain.on(chip, as_received=observation.on(at_own_gain)), inputs)


def units_of(model: nn.Module, gain: Gain = 1.0, *, converter: str) -> dict[str, Tensor]:
    """What a weight of 1 stands for at unit gain, of a network that was written with `model`'s weights.

    A memory that has lost all but `gain` of a weight sends outputs that are as much smaller. What makes up for that
    stands behind the converter, and multiplies its noise.

    >>> units_of(nn.Linear(2, 1), {"weight": 0.5}, converter="8-bit")["weight"].shape
    torch.Size([1, 1])
    """
    found = arrays(on_hardware(model, converter))
    names = {f"{name}.weight" if name else "weight": array for name, array in found.items()}
    return {name: array.unit / of_tensor(gain, name) for name, array in names.items()}
