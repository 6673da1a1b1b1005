"""Round trips with transformers: sharded folders stay loadable, MiniLM survives transmission."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from quietnn.channels.awgn import AWGN
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.transmit import transmit_checkpoint

transformers = pytest.importorskip("transformers")
DATA = Path(os.environ.get("QUIETNN_DATA", "~/.cache/quietnn")).expanduser()


def tiny_model() -> Any:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    torch.manual_seed(0)
    return transformers.BertModel(config).eval()


def test_a_sharded_folder_stays_loadable(tmp_path: Path) -> None:
    model = tiny_model()
    clean, noisy, out = (tmp_path / name for name in ("clean", "noisy", "out"))
    model.save_pretrained(clean, max_shard_size="8KB")
    assert len(list(clean.glob("*.safetensors"))) > 2
    variance = transmit_checkpoint(clean, noisy, channel=AWGN(wnr_db=10.0), seed=0)
    denoise_checkpoint(noisy, out, noise_variance=variance)
    assert {path.name for path in out.iterdir()} == {path.name for path in clean.iterdir()}
    loaded = transformers.BertModel.from_pretrained(out, local_files_only=True)
    before, received, after = (
        folder_model.state_dict()["encoder.layer.1.output.dense.weight"]
        for folder_model in (model, transformers.BertModel.from_pretrained(noisy, local_files_only=True), loaded)
    )
    assert (after - before).square().mean() < (received - before).square().mean()
    norm = "encoder.layer.0.output.LayerNorm.weight"
    assert loaded.state_dict()[norm].equal(model.state_dict()[norm])


@pytest.mark.assets
def test_minilm_survives_ten_decibels(tmp_path: Path) -> None:
    folder = DATA / "minilm"
    noisy, out = tmp_path / "noisy", tmp_path / "out"
    variance = transmit_checkpoint(folder, noisy, channel=AWGN(wnr_db=10.0), seed=1)
    denoise_checkpoint(noisy, out, noise_variance=variance, groups="layerwise")
    words = transformers.AutoTokenizer.from_pretrained(out, local_files_only=True)(
        "A quiet network.", return_tensors="pt"
    )
    vectors = {}
    for place in (folder, noisy, out):
        model = transformers.AutoModel.from_pretrained(place, local_files_only=True).eval()
        with torch.inference_mode():
            vectors[place] = model(**words).last_hidden_state.mean(dim=1)[0]
    assert vectors[out].shape == (384,)
    assert torch.isfinite(vectors[out]).all()
    assert torch.cosine_similarity(vectors[out], vectors[folder], dim=0) > 0.5
