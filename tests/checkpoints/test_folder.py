"""Model folders: indices and shards that disagree are refused, tied weights go by the name of their module."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.transmit import transmit
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.folder import FIRST_NAMES, find_shards, first_names
from quietnn.checkpoints.transmit import transmit_checkpoint
from quietnn.errors import InvalidWeights
from quietnn.weights import noisy_names

Run = Callable[..., str]


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


def test_a_missing_shard(sharded: Path, refused: Run) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    assert "names the shard model-00002-of-00003.safetensors, which is not in" in refused(sharded)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a readable index"),
        ("[]", "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"w": 3}}', "no weight_map"),
        ('{"weight_map": {"w": "../secret.safetensors"}}', "files beside the index"),
        ('{"weight_map": {"w": "config.json"}}', "files beside the index"),
        ('{"weight_map": {"w": "model-00001-of-00003.safetensors"}}', "puts 'w' into"),
    ],
)
def test_unsound_indices(sharded: Path, refused: Run, content: str, message: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    assert message in refused(sharded)


def test_one_tensor_in_two_shards(sharded: Path, state: dict[str, Tensor], refused: Run) -> None:
    second = sharded / "model-00002-of-00003.safetensors"
    save_file({**load_file(second), "scale": state["scale"]}, second)
    assert "'scale' is in" in refused(sharded)


def test_folders_without_a_model_or_with_two(tmp_path: Path, file: Path, refused: Run) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "readme.txt").write_text("nothing here")
    assert "there is no model in" in refused(folder)
    for name in ("one", "two"):
        (folder / f"{name}.safetensors").write_bytes(file.read_bytes())
    assert "several models (one.safetensors, two.safetensors)" in refused(folder)
    (folder / "model.safetensors").write_bytes(file.read_bytes())
    assert [shard.path.name for shard in find_shards(folder)] == ["model.safetensors"]


def test_an_index_that_forgets_a_tensor(sharded: Path, refused: Run) -> None:
    index = sharded / "model.safetensors.index.json"
    fields = json.loads(index.read_text())
    del fields["weight_map"]["mask"]
    index.write_text(json.dumps(fields))
    assert "puts 'mask' into no shard" in refused(sharded)


def test_an_index_that_never_ends(sharded: Path, refused: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from quietnn.checkpoints import folder

    index = sharded / "model.safetensors.index.json"
    monkeypatch.setattr(folder, "_MAX_INDEX_BYTES", 10)
    assert "more than 10 bytes" in refused(sharded)
    for make in (lambda: os.mkfifo(index), lambda: index.symlink_to("/dev/zero")):
        index.unlink()
        make()
        assert "not a regular file" in refused(sharded)


@pytest.mark.parametrize(("target", "message"), [("..", "that it lies in"), ("nowhere", "a link to nothing")])
def test_links_that_lead_nowhere(tmp_path: Path, sharded: Path, target: str, message: str) -> None:
    (sharded / "sub" / "link").symlink_to(target)
    with pytest.raises(InvalidWeights, match=message):
        denoise_checkpoint(sharded, tmp_path / "out", noise_variance=0.01)
    assert not (tmp_path / "out").exists()
