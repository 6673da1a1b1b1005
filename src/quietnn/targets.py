"""What a user holds: a module, a state dict or a plain tensor, seen as named noisy weights and back."""

import copy
from collections.abc import Collection, Mapping
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.weights import NORMALISATION_TYPES, Weights, check_module, noisy_names, noisy_names_of_state

Target = TypeVar("Target", bound="nn.Module | Weights | Tensor")

_TENSOR = "tensor"


def noisy_weights(
    target: "nn.Module | Weights | Tensor",
    *,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> dict[str, Tensor]:
    """The tensors of a target that the noise touches, by name; they share memory with the target.

    They are those that `noisy` names, else those of the rule of `noisy_names`.

    >>> list(noisy_weights(nn.Sequential(nn.Linear(1, 1, bias=False), nn.LayerNorm(1))))
    ['0.weight']
    """
    if isinstance(target, Tensor):
        return {_TENSOR: target.detach()}
    if isinstance(target, nn.Module):
        check_module(target, normalisation=normalisation)
        tensors: Weights = dict(target.named_parameters(remove_duplicate=False))
        names = noisy_names(target, normalisation=normalisation) if noisy is None else tuple(noisy)
    elif isinstance(target, Mapping):
        tensors = _only_tensors(target)
        names = _all_noisy(tensors, noisy_names_of_state(target)) if noisy is None else tuple(noisy)
    else:
        raise QuietnnError(
            f"cannot take weights from a {type(target).__name__}; give a module, a state dict or a tensor, for example "
            "transmit(model, wnr_db=6, seed=0); of an observation, what it holds: observation.received"
        )
    unknown = [name for name in names if name not in tensors]
    if unknown:
        raise InvalidWeights(f"{unknown[0]!r} is not a tensor of this model; its tensors are {some_of(tensors)}")
    if not names:
        raise InvalidWeights(
            "there is no noisy parameter at all; check the model and its normalisation types, or name the tensors that "
            "are noisy: observe(model, noisy=['head.weight'])"
        )
    return {name: tensors[name].detach() for name in _first_names(tensors, names)}


def with_weights(target: Target, weights: Weights, *, in_place: bool = False) -> Target:
    """The target with some tensors replaced: a copy, or the target itself.

    Names and shapes are checked before anything is written, so a failure leaves the target as it was. A copy
    shares no memory with the target, and tensors that are tied in the target are tied in the copy.
    """
    if isinstance(target, Tensor):
        result_tensor = target if in_place else target.detach().clone()
        _write_all({_TENSOR: result_tensor.detach()}, weights)
        return cast(Target, result_tensor)
    if isinstance(target, nn.Module):
        result = target if in_place else copy.deepcopy(target)
        _write_all(dict(result.named_parameters(remove_duplicate=False)), weights)
        return result
    if in_place:
        _write_all(target, weights)
        return target
    check_fits(target, weights)
    new = {_identity(target[name]): tensor for name, tensor in weights.items()}
    copied = copy.copy(target) if isinstance(target, dict) else {}  # a state dict carries its layers' versions along
    for name, tensor in target.items():
        identity = _identity(tensor)
        if identity not in new:
            new[identity] = tensor.detach().clone()
        copied[name] = new[identity]
    return cast(Target, copied)


def check_fits(tensors: Weights, weights: Weights) -> None:
    """Refuse weights that a model does not have, or has in another shape."""
    for name, tensor in weights.items():
        if name not in tensors:
            raise InvalidWeights(f"{name!r} is not a tensor of this model; its tensors are {some_of(tensors)}")
        if tensor.shape != tensors[name].shape:
            raise InvalidWeights(
                f"{name} has shape {tuple(tensor.shape)} where the model has {tuple(tensors[name].shape)}; "
                "use weights of the same network"
            )


@torch.no_grad()
def _write_all(tensors: Weights, weights: Weights) -> None:
    check_fits(tensors, weights)
    for name, tensor in weights.items():
        tensors[name].copy_(tensor)


def _only_tensors(state: Mapping[str, object]) -> Weights:
    """The state dict itself, once every value is known to be a tensor."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InvalidWeights(
                f"{name!r} is a {type(value).__name__}, not a tensor; give the state dict itself, "
                "for example checkpoint['model'], and leave out what is not a tensor"
            )
    return cast(Weights, state)


def _all_noisy(tensors: Weights, names: Collection[str]) -> tuple[str, ...]:
    """Those of the names whose tensor bears no other name, as one that a normalisation layer shares does."""
    split = {name for pair in split_ties(tensors, names) for name in pair}
    return tuple(name for name in names if name not in split)


def split_ties(tensors: Weights, names: Collection[str]) -> list[tuple[str, str]]:
    """Pairs of names of one tensor, the first of which is among the names and the second is not."""
    chosen = set(names)
    others = {_identity(tensor): name for name, tensor in tensors.items() if name not in chosen}
    return [(name, others[own]) for name in names if (own := _identity(tensors[name])) in others]


def _first_names(tensors: Weights, names: Collection[str]) -> list[str]:
    """One name for each tensor: of several for one (tied weights), the first, as in `named_parameters()`."""
    identities = {name: _identity(tensors[name]) for name in names}
    first: dict[tuple[object, ...], str] = {}
    for name in (name for name in tensors if name in identities):
        first.setdefault(identities[name], name)
    return list(dict.fromkeys(first[identity] for identity in identities.values()))


def _identity(tensor: Tensor) -> tuple[object, ...]:
    """Equal for two names of one tensor, different for two tensors."""
    if tensor.numel() == 0 or tensor.device.type == "meta" or tensor.layout is not torch.strided:
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def some_of(names: Collection[str]) -> str:
    """The first names, and how many more there are.

    >>> some_of(["a", "b", "c", "d", "e"])
    'a, b, c, d and 1 more'
    """
    names = list(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
