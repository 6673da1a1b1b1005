"""Send a module, a state dict or a tensor through a channel."""

from collections.abc import Collection

from torch import nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel, Observation
from quietnn.errors import QuietnnError
from quietnn.targets import Target, noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES


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
) -> Observation[Target]:
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
    return Observation(with_weights(target, observation.received, in_place=in_place), observation.noise_variance)
