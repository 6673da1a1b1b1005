"""Which tensors of a model are noisy, how they are grouped, and which cannot be computed with."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError, check_is

Weights = Mapping[str, Tensor]
"""Tensors by name, as in a state dict."""

Partition = Mapping[str, tuple[str, ...]]
"""The tensor names of each group, by group name. Groups are disjoint."""

NORMALISATION_TYPES: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._NormBase,  # BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm1d/2d/3d, lazy ones
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
"""Modules whose parameters are sent without noise, beside those whose class name tells; see `is_normalisation`."""

COMPUTABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The kinds of numbers that weights may be."""

LARGEST = 1e150
"""No weight is larger: sums of squares stay finite."""

_CLASS_NORMALISES = re.compile(r"Norm(Act|Activation|Gated|Fp32|FP32)?(\d+d?)?$|GRN$")
_LAYER_NORMALISES = re.compile(r"norm|^ln(_|\d|$)", re.IGNORECASE)
_BUFFERS = frozenset({"inv_freq", "final_logits_bias", "e_score_correction_bias", "layer_scalar"})
"""Buffers that networks of transformers save: a file does not tell them from parameters."""

_LEARN_MAPS = (nn.Linear, nn.Bilinear, nn.Embedding, nn.EmbeddingBag, nn.modules.conv._ConvNd)


def is_normalisation(layer: nn.Module, also: tuple[type[nn.Module], ...] = ()) -> bool:
    """Whether a layer normalises: by its type, or by the name of its class or of one that it extends.

    `LlamaRMSNorm`, `T5LayerNorm`, `FrozenBatchNorm2d` and the like count. A wrapper such as `PreNorm` does not, for it
    holds layers with parameters of their own, nor does a linear layer, whatever it is called. Types that you name count
    `also`.

    >>> class LlamaRMSNorm(nn.Module): ...
    >>> is_normalisation(LlamaRMSNorm()), is_normalisation(nn.Linear(2, 2))
    (True, False)
    """
    if isinstance(layer, (*NORMALISATION_TYPES, *also)):
        return True
    if isinstance(layer, _LEARN_MAPS) or not any(
        _CLASS_NORMALISES.search(kind.__name__) for kind in type(layer).__mro__
    ):
        return False
    return not any(True for child in layer.children() for _ in child.parameters())


def check_normalisation(normalisation: object) -> None:
    """Refuse what are not classes of layers."""
    kinds = normalisation if isinstance(normalisation, tuple | list) else (None,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise InvalidConfig(f"normalisation is {normalisation!r}; give a tuple of classes: normalisation=(Mine,)")


def noisy_names(
    module: nn.Module, *, normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES
) -> tuple[str, ...]:
    """The names of the parameters that go through the noise: all but those of normalisation layers.

    The names are those of `named_parameters()`, so a parameter that several layers share is named once, by its first
    name. One that a normalisation layer shares is sent without noise. Buffers are never noisy.

    Args:
        module: the network.
        normalisation: types whose parameters carry no noise, beside those that `is_normalisation` knows.

    >>> noisy_names(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    ('0.weight', '0.bias')
    """
    check_is(
        module,
        nn.Module,
        "noisy_names takes a network, and this",
        "give noisy_names(model); of a file, inspect_checkpoint(path).selection.noisy tells them",
    )
    check_normalisation(normalisation)
    clean = {
        id(parameter)
        for layer in module.modules()
        if is_normalisation(layer, normalisation)
        for parameter in layer.parameters()
    }
    return tuple(name for name, parameter in module.named_parameters() if id(parameter) not in clean)


def noisy_names_of_state(state: Weights) -> tuple[str, ...]:
    """The noisy names of a bare state dict, where there is no module to ask.

    The rule, on each layer (the names with a common prefix). Running statistics make it a normalisation layer. So does
    a `weight` (or a `gamma` beside a `beta`) of one dimension, or of its `bias`'s shape. So does a name with `norm` or
    `ln` if no tensor of the layer has more than one dimension. A `weight` of one value and nothing else is the
    slope of a PReLU and noisy. A PReLU with a slope for each channel looks like RMSNorm and is taken for one.
    Tensors that are not floating point are never noisy, nor are those by the names of well-known buffers.

    >>> noisy_names_of_state({"fc.weight": torch.ones(2, 3), "fc.bias": torch.ones(2), "ln.weight": torch.ones(3)})
    ('fc.weight', 'fc.bias')
    """
    floating = {name for name, tensor in state.items() if tensor.is_floating_point()}
    return noisy_names_of_shapes({name: tuple(tensor.shape) for name, tensor in state.items()}, floating)


def noisy_names_of_shapes(shapes: Mapping[str, Sequence[int]], floating: Collection[str]) -> tuple[str, ...]:
    """The same rule where only names and shapes are known, and which are floating point, as in the header of a file.

    >>> noisy_names_of_shapes({"fc.weight": (2, 3), "ln.weight": (3,)}, floating=("fc.weight", "ln.weight"))
    ('fc.weight',)
    """
    names: list[str] = []
    for layer, members in layerwise(shapes).items():
        parameters = {name.rpartition(".")[2]: shapes[name] for name in members}
        if not _looks_like_normalisation(layer.rpartition(".")[2], parameters):
            names += [name for name in members if name in floating and name.rpartition(".")[2] not in _BUFFERS]
    return tuple(names)


def _looks_like_normalisation(name: str, parameters: Mapping[str, Sequence[int]]) -> bool:
    """Whether a layer of this name and shapes normalises: it has running statistics, or scales each channel by itself.

    Older networks call scale and offset `gamma` and `beta`, others anything (`scale`, `g`, `w`) in a layer whose name
    tells. One single weight alone is the slope of a PReLU.
    """
    if parameters.keys() & {"running_mean", "running_var"}:
        return True
    if _LAYER_NORMALISES.search(name) and all(len(shape) <= 1 for shape in parameters.values()):
        return True
    scale = parameters["gamma"] if {"gamma", "beta"} <= parameters.keys() else parameters.get("weight", ())
    is_slope = parameters.keys() == {"weight"} and tuple(scale) == (1,)
    like_offset = len(scale) > 1 and tuple(scale) == tuple(parameters.get("bias", ()))  # LayerNorm over several axes
    return (len(scale) == 1 and not is_slope) or like_offset


def whole(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """One group for the whole model.

    >>> whole(["a.weight", "b.weight"])
    {'whole': ('a.weight', 'b.weight')}
    """
    return {"whole": tuple(names)}


def layerwise(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """One group per layer: the tensors whose names share all but their last part.

    A group has the name of its module; that of the model's own tensors is empty, as in `named_modules`.

    >>> layerwise(["conv.weight", "conv.bias", "fc.weight"])
    {'conv': ('conv.weight', 'conv.bias'), 'fc': ('fc.weight',)}
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition(".")[0], []).append(name)
    return {group: tuple(members) for group, members in groups.items()}


GROUPINGS = {"whole": whole, "layerwise": layerwise}


def partition(names: Sequence[str], groups: str | Partition) -> dict[str, tuple[str, ...]]:
    """The partition that `groups` names, or the user's own one once it is known to cover each name once."""
    if isinstance(groups, str):
        if groups not in GROUPINGS:
            raise QuietnnError(f"there is no grouping {groups!r}; choose one of {', '.join(GROUPINGS)}, or give a dict")
        chosen = GROUPINGS[groups](names)
    else:
        chosen = {group: tuple(members) for group, members in groups.items()}
    if not names:
        raise InvalidWeights("there is no noisy parameter at all; check the model and its normalisation types")
    for group, members in chosen.items():
        if not members:
            raise QuietnnError(f"group {group!r} is empty; give each group at least one tensor name, or leave it out")
    listed = [name for members in chosen.values() for name in members]
    wrong = sorted(set(listed) ^ set(names)) or sorted(name for name, times in Counter(listed).items() if times > 1)
    if wrong:
        raise QuietnnError(
            f"the groups must hold each noisy tensor exactly once; look at {', '.join(wrong[:5])}"
            + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        )
    return chosen


def check_module(module: nn.Module, *, normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES) -> None:
    """Refuse a module that cannot be repaired, before anything is copied or run.

    Scripted modules hide the kinds of their layers, and lazy, sparse, 8-bit and meta tensors have no values to compute
    with. Parameters and running statistics must be finite, and running variances at least zero; other buffers, such as
    masks, may hold infinity.
    """
    statistics: dict[str, Tensor] = {}
    for prefix, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise InvalidWeights(
                f"{prefix or 'the model'} is a scripted module, whose layers cannot be told apart; give the module "
                "that it was made from, before torch.jit.script or torch.jit.trace"
            )
        if is_normalisation(layer, normalisation):
            names = (f"{prefix}.{name}" if prefix else name for name in ("running_mean", "running_var"))
            found = (layer._buffers.get(name) for name in ("running_mean", "running_var"))
            statistics |= {name: buffer for name, buffer in zip(names, found, strict=True) if buffer is not None}
    for name, tensor in (*module.named_parameters(), *statistics.items()):
        check_kind(name, tensor)
        if tensor.is_floating_point() and tensor.numel():
            check_weights({name: tensor})
    for name, tensor in statistics.items():
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise InvalidWeights(
                f"{name} holds {float(tensor.min()):g}, and a variance is never negative; repair it first"
            )


def check_kind(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that holds no dense numbers that torch can compute with."""
    if nn.parameter.is_lazy(tensor):
        raise InvalidWeights(f"{name} is lazy and has no values yet; run the network once, for example on one input")
    if tensor.is_meta:
        raise InvalidWeights(f"{name} is on the meta device and has no values; load the weights first")
    if tensor.layout is not torch.strided:
        raise InvalidWeights(f"{name} is {tensor.layout}; quietnn computes with dense tensors, use .to_dense()")
    if tensor.is_floating_point() and tensor.dtype not in COMPUTABLE:
        raise InvalidWeights(
            f"{name} is {tensor.dtype}; quietnn computes with 16, 32 and 64 bit floats, use .bfloat16()"
        )


def check_weights(weights: Weights) -> None:
    """Refuse tensors that are not dense floating point, are empty, or hold NaN or infinity."""
    for name, tensor in weights.items():
        check_kind(name, tensor)
        if not tensor.is_floating_point():
            raise InvalidWeights(f"{name} is {tensor.dtype}; only floating point tensors can be noisy, leave it out")
        if tensor.numel() == 0:
            raise InvalidWeights(f"{name} has shape {tuple(tensor.shape)} and no entries; leave it out")
        least, largest = torch.aminmax(tensor.detach())  # NaN if there is one; nine times faster than isfinite
        if not (torch.isfinite(least) and torch.isfinite(largest)):
            bad = int((~torch.isfinite(tensor)).sum())
            raise InvalidWeights(
                f"{name} holds {bad} values that are not finite, of {tensor.numel()}; "
                "repair or exclude that tensor before going on"
            )
        if max(-float(least), float(largest)) > LARGEST:
            raise InvalidWeights(
                f"{name} holds {max(-float(least), float(largest)):.3g}, and no weight may pass {LARGEST:g}: its "
                "square would be infinite; scale the weights down first"
            )


def checked(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors one after the other, each once `check_weights` finds nothing wrong with it.

    >>> [name for name, tensor in checked({"w": torch.ones(2)})]
    ['w']
    """
    for name, tensor in weights.items():
        check_weights({name: tensor})
        yield name, tensor
