"""Weights that were measured on a chip, one or several times, as an observation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.channels.conductance import Memory
from quietnn.errors import InvalidConfig, check_is
from quietnn.noise import NoiseVariance, noise_of_each
from quietnn.observation import Observation
from quietnn.targets import check_fits, with_weights
from quietnn.weights import Weights


@torch.no_grad()
def from_readouts(
    network: nn.Module,
    readouts: Sequence[Weights],
    *,
    memory: Memory | None = None,
    noise_variance: NoiseVariance | None = None,
) -> Observation[nn.Module, Any]:
    """What was read from a chip, averaged, as an observation of a network.

    Readouts share the errors of writing and of drift, so these have to be told: by the model of the memory at its age,
    or as a variance. What differs between readouts is measured, and its share in the mean is added.

    Args:
        network: of the same architecture; what the readouts do not name, such as normalisation layers, is its own.
        readouts: one or more, each with the same tensors by name.
        memory: the model of the memory, such as `PCM(seconds=86400)`; it tells a gain and a noise variance by tensor.
        noise_variance: of writing and drift, in place of a model.

    Raises:
        InvalidWeights: if a tensor has another name or shape than in the network.

    >>> chip = nn.Linear(2, 1)
    >>> readout = {"weight": torch.ones(1, 2)}
    >>> from_readouts(chip, [readout, readout], noise_variance=0.01).noise_variance["weight"]
    0.01
    """
    check_is(network, nn.Module, "network", "give the network first: from_readouts(model, [readout])")
    check_is(readouts, Sequence, "readouts", "give a list of dicts by tensor name: from_readouts(model, [readout])")
    if not readouts or not readouts[0]:
        raise InvalidConfig("there is no readout; give one at least: from_readouts(model, [{'fc.weight': tensor}])")
    if (memory is None) == (noise_variance is None):
        raise InvalidConfig(
            "give either the model of the memory or its noise variance: "
            "from_readouts(model, readouts, memory=PCM(seconds=86400))"
        )
    parameters = dict(network.named_parameters())
    for readout in readouts:
        check_fits(parameters, readout)
        if set(readout) != set(readouts[0]):
            differs = sorted(set(readout) ^ set(readouts[0]))[0]
            raise InvalidConfig(f"{differs!r} is in some readouts and not in others; give the same tensors in each")
    read = {name: torch.stack([readout[name].detach() for readout in readouts]) for name in readouts[0]}
    mean = {name: tensor.mean(dim=0) for name, tensor in read.items()}
    noise = {name: _error_of_mean(tensor) for name, tensor in read.items()}
    gains = dict.fromkeys(mean, 1.0)
    if memory is not None:
        check_is(memory, Memory, "memory", "give the model of a memory: memory=PCM(seconds=86400)")
        moments = {name: memory.predict(tensor) for name, tensor in mean.items()}
        gains = {name: 1.0 if memory.compensate else one.gain for name, one in moments.items()}
        # What is read is smaller than what was written by the gain, and so are the errors that follow from it.
        told: Any = {name: one.noise_variance / gains[name] ** 2 for name, one in moments.items()}
    else:
        told = noise_of_each(noise_variance, mean)  # type: ignore[arg-type]
    total = {name: told[name] + noise[name] for name in mean}
    return Observation(
        with_weights(network, mean), total, gain=gains, offset=dict.fromkeys(mean, 0.0), noisy=tuple(mean)
    )


def _error_of_mean(read: Tensor) -> float:
    """The variance of the mean of several readouts; 0 of one, which tells nothing."""
    return float(read.double().var(dim=0).mean()) / len(read) if len(read) > 1 else 0.0
