"""What stands beside a network of transformers, as an adapter folder that peft loads.

Low rank is LoRA (Hu et al. 2022). A factor for each output is DoRA's magnitude (Liu et al. 2024): it takes the rows of
`R + B' A` to a length `m`, so `m = s |R + B' A|` and `B' = B / s` make `s R + B A`, exactly. Biases are written as peft
writes those that were trained, and normalisation layers as `modules_to_save`.
"""

import copy
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, MissingData
from quietnn.repairs.beside.part import Part
from quietnn.repairs.kinds import is_transposed_linear
from quietnn.weights import is_normalisation

if TYPE_CHECKING:
    from quietnn.repairs.beside.beside import Beside

_ADAPTED = (nn.Linear, nn.Embedding, nn.Conv2d)
_NAME = "default"


def write_peft_folder(folder: Path, beside: "Beside", model: nn.Module, *, overwrite: bool = False) -> Path:
    """Write an adapter folder; `PeftModel.from_pretrained(model, folder)` then does what the repaired network does.

    Args:
        folder: to write.
        beside: what stands beside the network, and fits it.
        model: the network as received, of transformers or any other that peft takes.
        overwrite: whether a folder that is there may be written to.

    Raises:
        MissingData: if peft is not installed.
        InvalidConfig: if something stands beside a tensor that peft has no adapter for.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingData("an adapter folder is written by peft; install it: pip install 'quietnn[peft]'") from error
    if folder.exists() and not overwrite:
        raise InvalidConfig(f"{folder} is there already; choose another folder, or say overwrite=True")
    base = copy.deepcopy(model)
    parts = _by_layer(base, beside.parts())
    saved, biases = _others(base, beside)
    ranks = {name: 1 if part.low_rank is None else part.low_rank[1].shape[0] for name, (_, part) in parts.items()}
    config = peft.LoraConfig(
        r=1,
        lora_alpha=1,
        rank_pattern={_pattern(name): rank for name, rank in ranks.items()},
        alpha_pattern={_pattern(name): rank for name, rank in ranks.items()},
        target_modules=list(parts),
        modules_to_save=saved or None,
        bias="all" if biases else "none",
        use_dora=any(part.scale is not None for _, part in parts.values()),
        fan_in_fan_out=any(is_transposed_linear(layer) for layer, _ in parts.values()),
        task_type="CAUSAL_LM" if hasattr(model, "lm_head") else None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fan_in_fan_out and tied weights: both are meant
        adapted = peft.get_peft_model(base, config)
        _write(adapted, beside, parts)
        adapted.save_pretrained(str(folder), save_embedding_layers=False)
    return folder


def _pattern(name: str) -> str:
    """A name as peft's patterns are written: a regular expression, at the beginning of the path."""
    return "^" + name.replace(".", r"\.")


def _by_layer(model: nn.Module, parts: dict[str, Part]) -> dict[str, tuple[nn.Module, Part]]:
    """The layers that something stands beside, by name: all that share a tensor."""
    tensors = dict(model.named_parameters())
    names = {id(tensors[name]): name for name in parts}
    found: dict[str, tuple[nn.Module, Part]] = {}
    taken: set[str] = set()
    for path, layer in model.named_modules():
        weight = layer._parameters.get("weight")
        name = None if weight is None else names.get(id(weight))
        is_grouped = isinstance(layer, nn.Conv2d) and layer.groups > 1
        if name is not None and (isinstance(layer, _ADAPTED) or is_transposed_linear(layer)) and not is_grouped:
            found[path] = layer, parts[name]
            taken.add(name)
    if left := [name for name in parts if name not in taken]:
        raise InvalidConfig(
            f"peft has no adapter for {left[0]!r}; save beside.state_dict() with safetensors instead, and use "
            "beside.wrap(model)"
        )
    if not found:
        raise InvalidConfig(
            "nothing stands beside a matrix, and peft has no adapter without one; save beside.state_dict() instead"
        )
    return found


def _others(model: nn.Module, beside: "Beside") -> tuple[list[str], list[str]]:
    """Layers that are saved whole, for they normalise, and biases that are replaced."""
    saved: dict[str, None] = {}
    biases: list[str] = []
    for name in (*beside.replaced, *beside.statistics):
        layer, _, key = name.rpartition(".")
        if is_normalisation(model.get_submodule(layer)):
            saved[layer] = None
        elif key == "bias":
            biases.append(name)
        else:
            raise InvalidConfig(
                f"peft has no adapter for {name!r}, which was replaced; save beside.state_dict() with safetensors "
                "instead, and use beside.wrap(model)"
            )
    return list(saved), biases


@torch.no_grad()
def _write(adapted: Any, beside: "Beside", parts: dict[str, tuple[nn.Module, Part]]) -> None:
    """Write the values into a network that peft has made."""
    root = adapted.base_model.model
    for name, (layer, part) in parts.items():
        _write_layer(root.get_submodule(name), layer, name, part)
    for name, value in {**beside.replaced, **beside.statistics}.items():
        path, _, key = name.rpartition(".")
        owner = root.get_submodule(path)
        held = owner.modules_to_save[_NAME] if hasattr(owner, "modules_to_save") else owner
        getattr(held.base_layer if hasattr(held, "base_layer") else held, key).copy_(value)


def _write_layer(adapter: Any, layer: Any, name: str, part: Part) -> None:
    """Write `B`, `A` and, with DoRA, the lengths of rows of one layer."""
    weight = layer.weight.detach()
    is_lookup, is_transposed = isinstance(layer, nn.Embedding), is_transposed_linear(layer)
    rows, columns = weight.flatten(1).shape
    up, down = part.low_rank or (weight.new_zeros(rows, 1), weight.new_ones(1, columns) / columns**0.5)
    merged = part.applied(weight).flatten(1)
    if is_lookup or is_transposed:  # both are written the other way round
        up, down, merged = down.T, up.T, merged.T
    scale = torch.ones(len(up)) if part.scale is None else part.scale.reshape(-1).expand(len(up))
    up = up / scale.to(up)[:, None]
    if is_lookup:
        adapter.lora_embedding_A[_NAME].copy_(down)
        adapter.lora_embedding_B[_NAME].copy_(up)
    else:
        for thin, values in ((adapter.lora_A, down), (adapter.lora_B, up)):
            thin[_NAME].weight.copy_(values.reshape(thin[_NAME].weight.shape))
    if _NAME in adapter.lora_magnitude_vector:
        lengths = merged.norm(dim=1)
        _check_lengths(name, scale, lengths)
        magnitudes = adapter.lora_magnitude_vector[_NAME].weight
        magnitudes.copy_((scale.sign().to(lengths) * lengths).reshape(magnitudes.shape))


def _check_lengths(name: str, scale: Tensor, lengths: Tensor) -> None:
    if bool((lengths == 0).any()) or bool((scale == 0).any()):
        raise InvalidConfig(
            f"an output of {name} has no weights but zeros, and DoRA divides by their length; save beside.state_dict() "
            "with safetensors instead, and use beside.wrap(model)"
        )
