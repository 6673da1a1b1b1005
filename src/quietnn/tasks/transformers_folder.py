"""Models and tokenizers from a local folder in transformers layout, never from a hub, never by unpickling."""

import importlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from quietnn.errors import InvalidConfig, InvalidWeights, MissingData


def transformers_package(what: str) -> Any:
    """The package transformers, silent, if it is installed."""
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise MissingData(
            f"{what} needs the package transformers, which is not installed; try: pip install 'quietnn[hf]'"
        ) from error
    # Its own progress bars and load reports would break ours.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it is no table")
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidWeights(f"{path} is not a model's configuration ({error})") from error
    return config


def load_model(kind: Any, folder: Path, what: str, *, new_head: bool = False, **settings: Any) -> nn.Module:
    """A network in evaluation mode: transformers' class for it, the folder, and `what` it should be, for messages.

    With a `new_head`, missing tensors are drawn afresh and superfluous ones left out; otherwise every tensor has to be
    there, and no other. The settings are those of `from_pretrained`.
    """
    if not new_head:
        settings["ignore_mismatched_sizes"] = (
            True  # they are told below, by name; transformers would only say that some
        )
    try:
        model, found = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True, **settings)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        raise InvalidWeights(f"{folder} cannot be loaded as {what}: {str(error)[:300]}") from error
    wrong = {kind: sorted(map(_told, found[f"{kind}_keys"])) for kind in ("missing", "unexpected", "mismatched")}
    if any(wrong.values()) and not new_head:
        told = "; ".join(f"{kind}: {', '.join(names[:4])}" for kind, names in wrong.items() if names)
        raise InvalidWeights(f"{folder} does not fit its own network ({told}); use the folder that training wrote")
    network: nn.Module = model.eval()
    return network


def _told(key: Any) -> str:
    """A tensor's name, and where shapes differ both: that of the file first."""
    return key if isinstance(key, str) else f"{key[0]} {tuple(key[1])} for {tuple(key[2])}"


def load_language_model(folder: Path) -> nn.Module:
    """A language model from a local folder, in float32 and evaluation mode, never from a hub.

    A claim of the configuration that the weights are quantised is left aside where the tensors are not.
    """
    transformers = transformers_package("a language model")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidWeights(f"{folder / 'config.json'} is not a model's configuration: {str(error)[:300]}") from error
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    encodes = getattr(config, "is_encoder_decoder", False)
    kind = transformers.AutoModelForSeq2SeqLM if encodes else transformers.AutoModelForCausalLM
    model: Any = load_model(kind, folder, "a language model", config=config, dtype=torch.float32)
    for part in model.modules():  # an encoder and a decoder have configurations of their own
        if hasattr(part, "config"):
            part.config.use_cache = False  # keys and values of all tokens, kept for text that is never written on
    network: nn.Module = model
    return network


def save_activations(model: nn.Module) -> None:
    """Mark the blocks of a model: fits hold what is between them, and compute what is inside again on the way back."""
    try:
        model.gradient_checkpointing_enable()  # type: ignore[operator]
    except (AttributeError, ValueError) as error:
        raise InvalidConfig(
            f"{type(model).__name__} has no blocks to compute again; leave out --save-memory"
        ) from error


def load_tokenizer(folder: Path, what: str) -> Any:
    """The tokenizer of a model."""
    transformers = transformers_package(what)
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise MissingData(
            f"{folder} has no tokenizer that can be read ({str(error)[:200]}); put tokenizer.json and "
            "tokenizer_config.json of the model there"
        ) from error
