"""A model's shards: one safetensors file, or a folder in Hugging Face layout with or without an index.

*Tied weights* have several names. A module calls a shared parameter as `named_parameters()` does, by the layer that was
made first, and that name keys its noise. A file keeps what its writer chose. `save_pretrained` keeps the name that the
architecture declares, nearly always the same one; `safetensors.torch.save_model` keeps the first in the alphabet and
notes the others in the metadata.
"""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietnn.checkpoints.header import Entry, Header, read_header
from quietnn.errors import InvalidWeights, MissingData

_SINGLE = "model.safetensors"
_INDEX = ".safetensors.index.json"
_MAX_INDEX_BYTES = 100_000_000
_LONGEST_NAME = 255

_WORDS = {"roberta.embeddings.word_embeddings.weight": "lm_head.decoder.weight"}
_HEADS = ("mim_head", "mlm_head", "mmm_image_head", "mmm_text_head")

FIRST_NAMES: Mapping[str, Mapping[str, str]] = {
    "CamembertForCausalLM": _WORDS,
    "CamembertForMaskedLM": _WORDS,
    "CsmForConditionalGeneration": {
        "depth_decoder.model.embed_tokens.weight": "backbone_model.embed_tokens.embed_audio_tokens.weight"
    },
    "FlavaForPreTraining": {f"{head}.decoder.bias": f"{head}.bias" for head in _HEADS},
    "JinaEmbeddingsV3ForMaskedLM": _WORDS,
    "LukeForMaskedLM": {"lm_head.decoder.bias": "lm_head.bias"},
    "XLMRobertaForCausalLM": _WORDS,
    "XLMRobertaForMaskedLM": _WORDS,
}
"""By architecture and saved name, the name in `named_parameters()`, where transformers saves another one.

Found by building every architecture of transformers 5 that has a default configuration: 189 of 864 tie weights, and
these are all that save them by another name than their first.
"""

_OUTPUT = re.compile(r"(^|[._])(lm_?head|head|decoder|output|proj_out|generator|classifier|unembed)", re.IGNORECASE)


@dataclass(frozen=True)
class Shard:
    """One safetensors file and its header."""

    path: Path
    header: Header


def find_shards(path: Path) -> tuple[Shard, ...]:
    """The shards of a file or folder, with their headers checked, and with the index if there is one."""
    if not path.is_dir():
        return (Shard(path, read_header(path)),)
    indices = sorted(path.glob("*" + _INDEX))
    singles = sorted(path.glob("*.safetensors"))
    only = [path / _SINGLE] if path / _SINGLE in singles else singles
    if not indices and len(only) == 1:
        return (Shard(only[0], read_header(only[0])),)
    if len(indices) == 1:
        shards = _sharded(indices[0])
        if path / _SINGLE in singles and path / _SINGLE not in [shard.path for shard in shards]:
            raise InvalidWeights(f"{path} holds both {_SINGLE} and {indices[0].name}; keep one, or name the file")
        return shards
    if not indices and not singles:
        raise MissingData(
            f"there is no model in {path}: looked for {_SINGLE}, any single .safetensors file and *{_INDEX}; "
            "save the model with save_pretrained, or name a .pt file itself"
        )
    found = ", ".join(file.name for file in (indices or singles)[:4])
    raise InvalidWeights(f"{path} holds several models ({found}); name one of the files instead")


def files_below(folder: Path, above: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Every file in a folder and the folders in it, wherever links lead, once all of them are known to be readable."""
    above = (*above, folder.resolve())
    files: list[Path] = []
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise InvalidWeights(f"cannot read {folder}: {error.strerror}; mend its permissions or move it") from error
    for path in inside:
        if path.is_dir():
            if path.resolve() in above:
                raise InvalidWeights(f"{path} is a link to a folder that it lies in; remove it")
            files += files_below(path, above)
        elif not path.is_file():
            raise InvalidWeights(f"{path} is neither file nor folder, or a link to nothing; remove it")
        elif not os.access(path, os.R_OK):
            raise InvalidWeights(f"cannot read {path}: permission denied; mend its permissions or move it")
        else:
            files.append(path)
    return tuple(files)


def all_entries(shards: Sequence[Shard]) -> dict[str, Entry]:
    """Every tensor of the model, shard by shard."""
    entries: dict[str, Entry] = {}
    for shard in shards:
        twice = entries.keys() & shard.header.entries.keys()
        if twice:
            raise InvalidWeights(
                f"{min(twice)!r} is in {shard.path.name} and in an earlier shard; save the model again"
            )
        entries.update(shard.header.entries)
    return entries


def _sharded(index: Path) -> tuple[Shard, ...]:
    weight_map = _weight_map(index)
    shards = []
    for name in dict.fromkeys(weight_map.values()):
        if not name.endswith(".safetensors") or Path(name).name != name:
            raise InvalidWeights(f"{index} names the shard {name!r}; shards are .safetensors files beside the index")
        if len(name.encode(errors="replace")) > _LONGEST_NAME or not (index.parent / name).is_file():
            raise MissingData(
                f"{index.name} names the shard {name[:_LONGEST_NAME]}, which is not in {index.parent}; fetch it"
            )
        shards.append(Shard(index.parent / name, read_header(index.parent / name)))
    homes = {name: shard.path.name for shard in shards for name in shard.header.entries}
    all_entries(shards)
    wrong = [name for name in {**weight_map, **homes} if weight_map.get(name) != homes.get(name)]
    if wrong:
        raise InvalidWeights(
            f"{index} puts {wrong[0]!r} into {weight_map.get(wrong[0], 'no shard')}, it is in "
            f"{homes.get(wrong[0], 'none')}; save the model again"
        )
    return tuple(shards)


def _weight_map(index: Path) -> Mapping[str, str]:
    if not index.is_file():  # a pipe would wait for ever
        raise InvalidWeights(f"{index} is not a regular file; save the model again")
    try:
        with index.open("rb") as file:
            content = file.read(_MAX_INDEX_BYTES + 1)
        if len(content) > _MAX_INDEX_BYTES:
            raise ValueError(f"more than {_MAX_INDEX_BYTES:,} bytes")
        fields: Any = json.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidWeights(f"{index} is not a readable index ({error}); save the model again") from error
    weight_map = fields.get("weight_map") if isinstance(fields, dict) else None
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(v, str) for v in weight_map.values()):
        raise InvalidWeights(f"{index} has no weight_map from tensors to shards; save the model again")
    return weight_map


def drop_quantisation(config: Path) -> None:
    """Take the claim that weights are quantised out of a configuration: changed floats lie on no grid any more."""
    try:
        fields: Any = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # not there, or not a configuration; it stays as it is
    if isinstance(fields, dict) and fields.pop("quantization_config", None) is not None:
        config.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def first_names(folder: Path, held: Collection[str], metadata: Mapping[str, str]) -> dict[str, str]:
    """The first names of tied tensors that a file holds by another name, by the name that it holds.

    A `config.json` in the file's folder may tell the architecture. Metadata name all layers that share a tensor but not
    their order; a layer for the output is taken to come last.

    >>> first_names(Path("nowhere"), ["lm_head.weight"], {"transformer.wte.weight": "lm_head.weight"})
    {'lm_head.weight': 'transformer.wte.weight'}
    """
    names = set(held)
    found = {name: first for name, first in _by_architecture(folder).items() if name in names and first not in names}
    for other, name in sorted(metadata.items(), reverse=True):
        if name in names and other not in names and _OUTPUT.search(name) and not _OUTPUT.search(other):
            found[name] = other
    return found


def _by_architecture(folder: Path) -> Mapping[str, str]:
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        architecture = config["architectures"][0]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return {}  # a folder without a description, or with one of another kind
    return FIRST_NAMES.get(architecture, {}) if isinstance(architecture, str) else {}
