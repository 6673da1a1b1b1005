"""Send a module, a state dict or a tensor through a channel."""

from collections.abc import Collection, Mapping
from typing import overload

import torch
from torch import nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel, Gain, Medium, Observation, Offset, of_tensor, undone
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.noise import NoiseVariance
from quietnn.targets import Target, noisy_weights, with_weights
from quietnn.threads import one_torch_thread
from quietnn.weights import NORMALISATION_TYPES, Weights


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
    channel: Medium | str,
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
    channel: Medium | str | None = None,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    in_place: bool = False,
) -> Observation[Target, NoiseVariance]:
    """What arrives when the target is sent: `r = w + z`, normalisation layers untouched (eq. 2).

    Give `wnr_db` or `noise_variance` for white Gaussian noise, or any other `channel`: one of your own, or by name and
    settings as on the command line (`"pcm:seconds=3600"`, see `quietnn.medium_named`).

    >>> import torch
    >>> observation = transmit(torch.ones(2), noise_variance=0.0, seed=0)
    >>> observation.received
    tensor([1., 1.])
    """
    if isinstance(channel, str):
        from quietnn.channels.named import medium_named  # which knows every medium, those made of others included

        channel = medium_named(channel)
    if channel is None:
        channel = AWGN(wnr_db=wnr_db, noise_variance=noise_variance)
    elif wnr_db is not None or noise_variance is not None:
        raise QuietnnError("give either a channel or its noise, not both; AWGN(wnr_db=...) is a channel of its own")
    if isinstance(channel, type) or not hasattr(channel, "transmit"):
        raise InvalidConfig(f"channel is {channel!r}; give one with its settings, for example PCM(seconds=3600)")
    weights = noisy_weights(target, noisy=noisy, normalisation=normalisation)
    with one_torch_thread():  # as from file to file: the same bits whatever the number of cores
        observation = channel.transmit(weights, seed=seed)
    _check_received(observation.received)
    received = with_weights(target, observation.received, in_place=in_place)
    return Observation(received, observation.noise_variance, observation.gain, observation.offset)


def _check_received(received: Weights) -> None:
    """Refuse what does not fit into the dtype that the weights have: nothing infinite is handed on."""
    for name, tensor in received.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidWeights(
                f"{name} is {tensor.dtype}, whose largest number is {torch.finfo(tensor.dtype).max:.4g}, and what "
                "arrives passes that; send it with less noise or in a wider dtype, for example model.float()"
            )


def at_unit_gain(
    observation: Observation[Target, NoiseVariance],
    *,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> Observation[Target, NoiseVariance]:
    """The same observation with the medium's gain and offset undone: `(r - offset) / gain = w + z`, for the denoisers.

    Args:
        observation: what arrived.
        noisy: names of the tensors that went through the medium; those that it tells a gain or an offset of, if any,
            else those of the usual rule.
        normalisation: module types whose parameters carry no noise.

    >>> import torch
    >>> at_unit_gain(Observation(torch.tensor([1.0, 2.0]), 0.1, gain=0.5, offset=1.0)).received
    tensor([0., 2.])

    Raises:
        InvalidConfig: if a tensor is named whose gain or offset the medium does not tell.
    """
    gain, offset = observation.gain, observation.offset
    told = [value for value in (gain, offset) if isinstance(value, Mapping)]
    if not told and (gain, offset) == (1.0, 0.0):
        return observation
    if noisy is None and told:
        noisy = tuple(told[0])
    weights = noisy_weights(observation.received, noisy=noisy, normalisation=normalisation)
    missing = [name for name in weights if any(name not in value for value in told)]
    if missing:
        raise InvalidConfig(
            f"the medium tells no gain of {missing[0]!r}, only of {', '.join(list(told[0])[:4])}; "
            "name tensors that went through it, or leave `noisy` out"
        )
    scaled = {name: undone(own, of_tensor(gain, name), of_tensor(offset, name)) for name, own in weights.items()}
    names = told[0] if told else scaled
    return Observation(
        with_weights(observation.received, scaled),
        observation.noise_variance,
        _left(gain, 1.0, names, scaled),
        _left(offset, 0.0, names, scaled),
    )


def _left(value: Gain | Offset, neutral: float, names: Collection[str], done: Collection[str]) -> Gain | Offset:
    """What is still to be undone; the neutral value where that is nothing."""
    rest = {name: of_tensor(value, name) for name in names if name not in done}
    return {**dict.fromkeys(done, neutral), **rest} if rest else neutral
