"""Send a module, a state dict or a tensor through a channel."""

from collections.abc import Collection, Mapping
from typing import overload

from torch import nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel, Medium, Observation
from quietnn.errors import QuietnnError
from quietnn.noise import NoiseVariance
from quietnn.targets import Target, noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES


@overload
def transmit(
    target: Target,
    *,
    seed: int,
    wnr_db: float | None = None,
    noise_variance: float | None = None,
    channel: Channel | None = None,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    in_place: bool = False,
) -> Observation[Target]: ...


@overload
def transmit(
    target: Target,
    *,
    seed: int,
    channel: Medium,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    in_place: bool = False,
) -> Observation[Target, NoiseVariance]: ...


def transmit(
    target: Target,
    *,
    seed: int,
    wnr_db: float | None = None,
    noise_variance: float | None = None,
    channel: Medium | None = None,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    in_place: bool = False,
) -> Observation[Target, NoiseVariance]:
    """What arrives when the target is sent: `r = w + z`, normalisation layers untouched (eq. 2).

    Give `wnr_db` or `noise_variance` for white Gaussian noise, or any other `channel`.

    >>> import torch
    >>> observation = transmit(torch.ones(2), noise_variance=0.0, seed=0)
    >>> observation.received
    tensor([1., 1.])
    """
    if channel is None:
        channel = AWGN(wnr_db=wnr_db, noise_variance=noise_variance)
    elif wnr_db is not None or noise_variance is not None:
        raise QuietnnError("give either a channel or its noise, not both; AWGN(wnr_db=...) is a channel of its own")
    observation = channel.transmit(noisy_weights(target, noisy=noisy, normalisation=normalisation), seed=seed)
    received = with_weights(target, observation.received, in_place=in_place)
    return Observation(received, observation.noise_variance, observation.gain)


def at_unit_gain(
    observation: Observation[Target, NoiseVariance],
    *,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> Observation[Target, NoiseVariance]:
    """The same observation with the medium's gain undone: `r / gain = w + z`, as the denoisers expect it.

    >>> import torch
    >>> at_unit_gain(Observation(torch.tensor([1.0, 2.0]), 0.1, gain=0.5)).received
    tensor([2., 4.])
    """
    gain = observation.gain
    if not isinstance(gain, Mapping) and gain == 1.0:
        return observation
    weights = noisy_weights(observation.received, noisy=noisy, normalisation=normalisation)
    scaled = {name: tensor / (gain[name] if isinstance(gain, Mapping) else gain) for name, tensor in weights.items()}
    return Observation(with_weights(observation.received, scaled), observation.noise_variance)
