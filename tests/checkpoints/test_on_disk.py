"""Tensors that stay on the disk behave as those of a dict."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from quietnn.checkpoints.opening import open_checkpoint
from quietnn.checkpoints.transmit import OnDisk

NAMES = ("fc.weight", "scale", "conv.weight")


@pytest.mark.parametrize("kind", ["file", "sharded", "torch"])
def test_it_is_a_mapping(kind: str, state: dict[str, Tensor], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    torch.save(state, tmp_path / "model.pt")
    path = tmp_path / "model.pt" if kind == "torch" else request.getfixturevalue(kind)
    weights = OnDisk(open_checkpoint(path), NAMES)
    assert tuple(weights) == NAMES
    assert len(weights) == len(NAMES)
    for name, tensor in weights.items():
        assert tensor.dtype == state[name].dtype
        assert tensor.shape == state[name].shape
        assert torch.equal(tensor, state[name])


def test_only_what_was_named_is_in_it_and_looking_reads_nothing(file: Path) -> None:
    read: list[int] = []
    weights = OnDisk(open_checkpoint(file), NAMES, on_progress=read.append)
    assert "scale" in weights
    assert "conv.bias" not in weights
    with pytest.raises(KeyError):
        weights["conv.bias"]
    assert read == []
    assert weights["fc.weight"].nbytes == read[0]
