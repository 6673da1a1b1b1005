"""Weights are loaded if they fit, else the model stays as it was; written whole or not at all."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from quietnn.errors import InvalidWeights, MissingData
from quietnn.tasks.weights_file import load_weights, write_weights


def test_what_is_written_is_read_with_its_metadata(tmp_path: Path) -> None:
    source, other = nn.Linear(3, 2), nn.Linear(3, 2)
    write_weights(tmp_path / "new" / "w.safetensors", source.state_dict(), metadata={"task": "mine"})
    assert load_weights(other, tmp_path / "new" / "w.safetensors") == {"task": "mine"}
    assert torch.equal(source.weight, other.weight)


def test_a_model_that_the_weights_do_not_fit_stays_as_it_was(tmp_path: Path) -> None:
    path, model = tmp_path / "w.safetensors", nn.Linear(3, 2)
    before = model.weight.detach().clone()
    write_weights(path, {"weight": torch.zeros(2, 3), "bias": torch.zeros(4), "more": torch.zeros(1)}, metadata={})
    with pytest.raises(InvalidWeights, match=r"unexpected: more; of another shape: bias \(4,\) for \(2,\)"):
        load_weights(model, path)
    assert torch.equal(model.weight, before)


def test_weights_that_are_not_finite_are_neither_written_nor_read(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    weights = {"weight": torch.full((2, 3), torch.inf), "bias": torch.zeros(2)}
    with pytest.raises(InvalidWeights, match=r"w\.safetensors: weight holds 6 values"):
        write_weights(tmp_path / "w.safetensors", weights, metadata={})
    assert not list(tmp_path.iterdir())
    torch.save(weights, path)
    with pytest.raises(InvalidWeights, match=r"w\.pt: weight holds 6 values"):
        load_weights(nn.Linear(3, 2), path)


def test_tied_weights_are_in_a_file_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    path = tmp_path / "w.safetensors"
    write_weights(path, {"0.weight": torch.eye(3)}, metadata={})
    assert list(load_file(path)) == ["0.weight"]
    load_weights(model, path)
    assert torch.equal(model[1].weight, torch.eye(3))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no weights file"):
        load_weights(nn.Linear(1, 1), tmp_path / "none.safetensors")
