"""Tied weights go by the name of `named_parameters()`, whatever name a file holds them by."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.transmit import transmit
from quietnn.checkpoints.folder import FIRST_NAMES, first_names
from quietnn.checkpoints.transmit import transmit_checkpoint
from quietnn.weights import noisy_names

HELD = "roberta.embeddings.word_embeddings.weight"


def language_model() -> nn.ModuleDict:
    """The words come first, the head is first in the alphabet."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"transformer": nn.Embedding(8, 4), "lm_head": nn.Linear(4, 8, bias=False)})
    model["lm_head"].weight = model["transformer"].weight
    return model


def test_a_file_of_save_model_meets_the_noise_of_its_module(tmp_path: Path) -> None:
    model, loaded = language_model(), language_model()
    save_model(model, str(tmp_path / "model.safetensors"))
    transmit_checkpoint(
        tmp_path / "model.safetensors", tmp_path / "noisy.safetensors", channel=AWGN(wnr_db=5.0), seed=1
    )
    load_model(loaded, tmp_path / "noisy.safetensors")
    sent = transmit(model, wnr_db=5.0, seed=1).received
    assert noisy_names(model) == ("transformer.weight",)
    assert loaded["transformer"].weight.equal(sent["transformer"].weight)


@pytest.mark.parametrize(
    "config", ["", "[]", "7", '{"architectures": null}', '{"architectures": []}', '{"architectures": [["x"]]}', "{"]
)
def test_a_description_that_tells_nothing_changes_nothing(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert first_names(tmp_path, [HELD], {}) == {}


def test_an_architecture_that_saves_another_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["XLMRobertaForMaskedLM"]}))
    assert first_names(tmp_path, [HELD], {}) == {HELD: "lm_head.decoder.weight"}
    assert first_names(tmp_path, [HELD, "lm_head.decoder.weight"], {}) == {}, "both are there, so they are not tied"
    assert first_names(tmp_path, ["other.weight"], {}) == {}


def test_metadata_that_name_no_tensor_are_no_ties() -> None:
    assert first_names(Path("nowhere"), ["lm_head.weight"], {"format": "pt", "made": "lm_head.weight.old"}) == {}


def test_no_saved_name_is_its_own_first_name() -> None:
    assert all(name != first for names in FIRST_NAMES.values() for name, first in names.items())
