"""Round trips with transformers: sharded folders stay loadable, MiniLM survives transmission."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from quietnn.channels.awgn import AWGN
from quietnn.channels.table import channel_named
from quietnn.channels.transmit import transmit
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.inspect import inspect_checkpoint
from quietnn.checkpoints.transmit import transmit_checkpoint, transmit_checkpoint_through
from quietnn.weights import noisy_names

transformers = pytest.importorskip("transformers")
DATA = Path(os.environ.get("QUIETNN_DATA", "~/.cache/quietnn")).expanduser()


def tiny_model() -> Any:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    torch.manual_seed(0)
    return transformers.BertModel(config).eval()


_SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_WIDE = {**_SIZES, "intermediate_size": 32, "num_key_value_heads": 1, "head_dim": 8}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForMaskedLM": ("BertConfig", {**_SIZES, "intermediate_size": 32}),
    "DistilBertForMaskedLM": ("DistilBertConfig", {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2}),
    "GPT2LMHeadModel": ("GPT2Config", {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "LlamaForCausalLM": ("LlamaConfig", {**_WIDE, "tie_word_embeddings": True}),
    "MistralForCausalLM": ("MistralConfig", _WIDE),
    "Qwen2ForCausalLM": ("Qwen2Config", {**_WIDE, "tie_word_embeddings": True}),
    "GemmaForCausalLM": ("GemmaConfig", _WIDE),
    "T5ForConditionalGeneration": (
        "T5Config",
        {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
    ),
    "ViTForImageClassification": (
        "ViTConfig",
        {**_SIZES, "intermediate_size": 32, "image_size": 8, "patch_size": 4, "num_labels": 3},
    ),
    "OPTForCausalLM": (
        "OPTConfig",
        {**_SIZES, "ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 16},
    ),
    # These three save tied weights by another name than their first one.
    "XLMRobertaForMaskedLM": ("XLMRobertaConfig", {**_SIZES, "intermediate_size": 32}),
    "CamembertForCausalLM": ("CamembertConfig", {**_SIZES, "intermediate_size": 32, "is_decoder": True}),
    "LukeForMaskedLM": (
        "LukeConfig",
        {**_SIZES, "intermediate_size": 32, "entity_vocab_size": 20, "entity_emb_size": 8},
    ),
}


def made(architecture: str) -> Any:
    """A tiny network of an architecture; its scales and offsets are moved from one and zero."""
    config, sizes = ARCHITECTURES[architecture]
    torch.manual_seed(0)
    model = getattr(transformers, architecture)(getattr(transformers, config)(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_module_and_its_saved_folder_have_the_same_noisy_tensors(architecture: str, tmp_path: Path) -> None:
    model = made(architecture)
    # ViT is saved by the names of older releases of transformers unless one asks for those of the module.
    model.save_pretrained(tmp_path / "model", save_original_format=False)
    found = inspect_checkpoint(tmp_path / "model")
    names = noisy_names(model)
    assert sorted(map(found.checkpoint.noise_name, found.whole.tensors)) == sorted(names)
    assert set(names) <= {name for name, _ in model.named_parameters()}
    scales = {name for name, _ in model.named_parameters() if "norm" in name.lower() or ".ln_" in name}
    assert scales
    assert not scales & set(names)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_so_do_those_of_a_folder_with_older_names(architecture: str, tmp_path: Path) -> None:
    model = made(architecture)
    model.save_pretrained(tmp_path)
    found = inspect_checkpoint(tmp_path)
    values = {parameter.numpy(force=True).tobytes(): name for name, parameter in model.named_parameters()}
    assert len(values) == len(list(model.parameters())), "each parameter is known by its values"
    read = [values[found.checkpoint.read(name).numpy().tobytes()] for name in found.whole.tensors]
    assert sorted(read) == sorted(noisy_names(model))


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "LlamaForCausalLM", "XLMRobertaForMaskedLM"])
@pytest.mark.parametrize("channel", ["awgn", "pcm:seconds=3600"])
def test_tied_weights_meet_the_same_noise_in_memory_and_in_a_folder(
    architecture: str, channel: str, tmp_path: Path
) -> None:
    model = made(architecture)
    clean, noisy = tmp_path / "clean", tmp_path / "noisy"
    model.save_pretrained(clean)
    if channel == "awgn":
        transmit_checkpoint(clean, noisy, channel=AWGN(wnr_db=10.0), seed=3)
        sent = transmit(model, wnr_db=10.0, seed=3).received
    else:
        transmit_checkpoint_through(clean, noisy, channel=channel_named(channel), description=channel, seed=3)
        sent = transmit(model, channel=channel, seed=3).received
    loaded = type(model).from_pretrained(noisy, local_files_only=True).state_dict()
    for name, tensor in sent.state_dict().items():
        assert loaded[name].equal(tensor), name


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
