"""What an estimate of the noise power is, and the two that rest on nothing but the noise itself."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, InvalidWeights, check_is
from quietnn.targets import check_fits, noisy_weights
from quietnn.weights import NORMALISATION_TYPES, Weights, check_weights, noisy_names, noisy_names_of_state

_CHUNK = 1 << 20


@dataclass(frozen=True)
class NoisePower:
    """An estimate of `sigma_z^2`."""

    variance: float  # the estimate; pass it on as `noise_variance=`
    standard_error: float  # of `variance`; where it is as large, little is known but an upper limit
    source: str  # what it rests on

    def __str__(self) -> str:
        """The estimate with its error, and where it is from."""
        return f"noise variance {self.variance:.4g} ± {self.standard_error:.2g} ({self.source})"


def noise_power_from_pilots(
    received: "nn.Module | Weights | Tensor",
    sent: Mapping[str, Tensor | float] | Tensor | float,
    *,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> NoisePower:
    """Estimate the noise power from entries whose sent values are known: pilots, or weights that are zero by agreement.

        sigma_z^2 = mean of (r - w)^2        standard error  sigma_z^2 sqrt(2 / n)

    Args:
        received: what arrived: a module, a state dict or a tensor.
        sent: what was sent, by tensor name, with NaN where it is not known; a number stands for a tensor full of it
            (`{"fc.bias": 0.0}`). For a single tensor, its values or a number.
        noisy: names of the noisy tensors, where the usual rule does not fit.
        normalisation: module types whose parameters carry no noise.

    Raises:
        InvalidConfig: if no entry is known, a value is neither a tensor nor a number, or a tensor carries no noise.
        InvalidWeights: if a name or shape does not fit, or a known entry did not arrive as a finite number.

    >>> received = {"fc.weight": torch.tensor([[0.5, 3.1], [-0.5, 2.0]])}
    >>> pruned = torch.tensor([[0.0, torch.nan], [0.0, torch.nan]])         # the first column was sent as zeros
    >>> estimate = noise_power_from_pilots(received, {"fc.weight": pruned})
    >>> estimate.variance, estimate.standard_error
    (0.25, 0.25)
    """
    if isinstance(received, Tensor):
        received = {"tensor": received.detach()}
        sent = {"tensor": sent} if not isinstance(sent, Mapping) else sent
    if not isinstance(sent, Mapping):
        raise InvalidConfig("a model has many tensors; say which were known before: sent={'name': values, ...}")
    state = received.state_dict() if isinstance(received, nn.Module) else received
    known = _known(state, sent)
    if noisy is None and isinstance(received, nn.Module):
        noisy = noisy_names(received, normalisation=normalisation)
    elif noisy is None:
        noisy = noisy_names_of_state(state)
    for name in known:
        if name not in noisy:
            raise InvalidConfig(
                f"{name} arrives without noise and cannot tell of any; name entries of noisy tensors, or list it in "
                "noisy=[...] if it does carry noise"
            )
    squares, count = 0.0, 0
    for name, values in known.items():
        mask = ~torch.isnan(values)
        difference = (state[name].detach()[mask].double() - values[mask].double()).square().sum()
        squares, count = squares + float(difference), count + int(mask.sum())
    if not count:
        raise InvalidConfig(
            "no transmitted value is known, so pilots cannot tell the noise power; name some entries with their "
            "values, or use noise_power_from_receptions or noise_power_from_batch_norm"
        )
    if not math.isfinite(squares):
        raise InvalidWeights("a pilot did not arrive as a finite number; leave such entries out (NaN in `sent`)")
    return _of(squares, count, f"{count} known entries")


def _known(state: Weights, sent: Mapping[str, Tensor | float]) -> dict[str, Tensor]:
    """What was sent as tensors of the shapes that arrived."""
    known = {}
    for name, values in sent.items():
        if not isinstance(values, Tensor | float | int):
            raise InvalidConfig(
                f"what was sent as {name} is a {type(values).__name__}; give a tensor of its values, with NaN where "
                "they are not known, or a number"
            )
        is_full = not isinstance(values, Tensor) and name in state
        known[name] = torch.full_like(state[name], float(values)) if is_full else torch.as_tensor(values)
    check_fits(state, known)
    return known


def noise_power_from_receptions(
    receptions: Sequence["nn.Module | Weights | Tensor"],
    *,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> NoisePower:
    """Estimate the noise power from the same weights received several times, with independent noise of one power.

    For two receptions, with `n` weights,

        sigma_z^2 = mean of (r_1 - r_2)^2 / 2        standard error  sigma_z^2 sqrt(2 / n)

    and in general the variance between receptions, with `n (K - 1)` degrees of freedom.

    Args:
        receptions: two or more modules, state dicts or tensors, all of one network.
        normalisation: module types whose parameters carry no noise.

    Raises:
        InvalidConfig: if there is one reception only, or one was given twice.
        InvalidWeights: if they are not of one network, or not finite.

    >>> estimate = noise_power_from_receptions([torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])])
    >>> estimate.variance, estimate.standard_error
    (0.5, 0.5)
    """
    remedy = "give a list of networks: noise_power_from_receptions([first, second])"
    if isinstance(receptions, nn.Module):  # a Sequential has a length
        raise InvalidConfig(f"receptions is one network; {remedy}")
    check_is(receptions, Sequence, "receptions", remedy)
    if len(receptions) < 2:
        raise InvalidConfig(
            f"{len(receptions)} reception cannot tell noise from weights; have them sent once more, or use "
            "noise_power_from_pilots or noise_power_from_batch_norm"
        )
    if len({id(reception) for reception in receptions}) < len(receptions):
        raise InvalidConfig("the same reception was given twice; receptions must carry independent noise")
    all_weights = [noisy_weights(reception, normalisation=normalisation) for reception in receptions]
    first, *others = all_weights
    for other in others:
        check_fits(other, first)
        check_fits(first, other)
    for weights in all_weights:
        check_weights(weights)
    squares = sum(_scatter([weights[name] for weights in all_weights]) for name in first)
    count = sum(tensor.numel() for tensor in first.values()) * len(others)
    return _of(squares, count, f"{len(receptions)} receptions")


def _scatter(tensors: Sequence[Tensor]) -> float:
    """The sum of squared deviations from the mean over receptions, in pieces that are widened to float64."""
    total = 0.0
    for pieces in zip(*(torch.split(tensor.reshape(-1), _CHUNK) for tensor in tensors), strict=True):
        stacked = torch.stack([piece.double() for piece in pieces])
        total += float((stacked - stacked.mean(0)).square().sum())
    return total


def _of(squares: float, degrees: int, source: str) -> NoisePower:
    variance = squares / degrees
    return NoisePower(variance, variance * math.sqrt(2 / degrees), source)
