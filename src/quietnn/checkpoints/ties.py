"""The names of tied weights: a file holds one of them, which may not be the one that keys their noise.

A module names a shared parameter as `named_parameters()` does: by the layer that was made first. A file keeps what its
writer chose. `save_pretrained` keeps the name that the architecture declares, nearly always the same one;
`safetensors.torch.save_model` keeps the first in the alphabet and notes the others in the metadata.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

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
_CONFIG = "config.json"


def first_names(folder: Path, held: Collection[str], metadata: Mapping[str, str]) -> dict[str, str]:
    """The first names of tied tensors that a file holds by another name, by the name that it holds.

    Metadata name all layers that share a tensor but not their order. A layer for the output is taken to come last.

    Args:
        folder: where the file is; a `config.json` beside it may tell the architecture.
        held: the names of the tensors in the file.
        metadata: of the file.

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
        config: Any = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        architecture = config["architectures"][0]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return {}  # a folder without a description, or with one of another kind
    return FIRST_NAMES.get(architecture, {}) if isinstance(architecture, str) else {}
