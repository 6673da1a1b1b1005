"""Send a module, a state dict or a tensor through a channel."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.moments import one_torch_thread
from quietnn.observation import Observation
from quietnn.targets import Target, noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES


def transmit(
    target: Target,
    *,
    seed: int,
    wnr_db: float | None = None,
    noise_variance: float | None = None,
    channel: Channel | str | None = None,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    in_place: bool = False,
) -> Observation[Target, Any]:
    """Send weights through noise and return what arrives: `r = w + z`, normalisation layers untouched (eq. 2).

    Give `wnr_db` or `noise_variance` for white Gaussian noise, or any other `channel`: one of your own, or by name and
    settings as on the command line (`"pcm:seconds=3600"`, see `quietnn.channel_named`).

    >>> import torch
    >>> observation = transmit(torch.ones(2), noise_variance=0.0, seed=0)
    >>> observation.received
    tensor([1., 1.])
    """
    if isinstance(channel, str):
        from quietnn.channels.table import channel_named  # which knows every channel, those made of others included

        channel = channel_named(channel)
    if channel is None:
        channel = AWGN(wnr_db=wnr_db, noise_variance=noise_variance)
    elif wnr_db is not None or noise_variance is not None:
        raise QuietnnError("give either a channel or its noise, not both; AWGN(wnr_db=...) is a channel of its own")
    if isinstance(channel, type) or not hasattr(channel, "transmit"):
        raise InvalidConfig(f"channel is {channel!r}; give one with its settings, for example PCM(seconds=3600)")
    weights = noisy_weights(target, noisy=noisy, normalisation=normalisation)
    with one_torch_thread():  # as from file to file: the same bits whatever the number of cores
        observation = channel.transmit(weights, seed=seed)
    for name, tensor in observation.received.items():  # nothing infinite is handed on
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidWeights(
                f"{name} is {tensor.dtype}, whose largest number is {torch.finfo(tensor.dtype).max:.4g}, and what "
                "arrives passes that; send it with less noise or in a wider dtype, for example model.float()"
            )
    received = with_weights(target, observation.received, in_place=in_place)
    names = None if noisy is None else tuple(weights)
    sent = cast("Observation[Any, Any]", observation)
    return replace(sent, received=received, noisy=names, normalisation=normalisation)
