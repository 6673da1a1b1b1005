"""Adapter folders: peft loads them onto the received network and gives the repaired one's outputs."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pages import ROOT, blocks
from torch import Tensor, nn

from quietnn import load_task
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, MissingData
from quietnn.evidence import Evidence
from quietnn.repairs.beside.beside import Beside
from quietnn.repairs.fitting.whitened import PosteriorSettings
from quietnn.repairs.front import repair
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.sst2 import load_classifier

SHORT = PosteriorSettings(num_steps=3, num_guard_steps=1)
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 40}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertForSequenceClassification", {**SIZES, "max_position_embeddings": 16, "num_labels": 3}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**SIZES, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40}),
}
TOKENS = torch.randint(0, 40, (12, 8), generator=torch.Generator().manual_seed(0))
ASKED = [{"trainable": "digital"}, {"trainable": "adapter", "rank": 3}, {"trainable": "adapter", "budget": 0.2}]
pytestmark = pytest.mark.filterwarnings("ignore:.*(fan_in_fan_out|tie|tied|task_type|does not match):UserWarning")


@pytest.fixture(autouse=True)
def peft() -> None:
    pytest.importorskip("peft", reason="needs the [peft] extra")


def network(family: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config, kind, sizes = FAMILIES[family]
    made: nn.Module = getattr(transformers, kind)(getattr(transformers, config)(**sizes)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3.0)  # as it is drawn it hardly does a thing
    return made


def next_token(outputs: Tensor, labels: Tensor) -> Tensor:
    losses = nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
    return losses.view(labels.shape).mean(1)


def loaded(received: nn.Module, folder: Path) -> nn.Module:
    from peft import PeftModel

    found: nn.Module = PeftModel.from_pretrained(copy.deepcopy(received), str(folder)).eval()
    return found


@torch.no_grad()
def logits(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    return model(**inputs).logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("channel", ["awgn", "pcm:seconds=86400,compensate=false"])
@pytest.mark.parametrize("family", FAMILIES)
def test_peft_gives_the_outputs_of_the_repaired_network(family: str, channel: str, tmp_path: Path) -> None:
    model = network(family)
    observation = transmit(model, **({"wnr_db": 3.0} if channel == "awgn" else {"channel": channel}), seed=1)
    is_text = family != "bert"
    known = TOKENS if is_text else torch.arange(12) % 3
    for place, asked in enumerate(ASKED):
        more: dict[str, Any] = {**asked, **({"loss": next_token} if is_text else {})}
        how = {"method": "mmse_layerwise"} if place == 2 else {"method": "posterior", "settings": SHORT}
        result = repair(observation, {"input_ids": TOKENS}, known, **how, **more)
        folder = result.beside.save_peft(tmp_path / str(place), observation.received)
        expected, inputs = logits(result.model, {"input_ids": TOKENS}), {"input_ids": TOKENS}
        assert float((expected - logits(observation.received, inputs)).abs().max()) > 1e-3
        torch.testing.assert_close(logits(loaded(observation.received, folder), inputs), expected, atol=1e-5, rtol=1e-5)
        wrapped = result.beside.wrap(observation.received)
        torch.testing.assert_close(logits(wrapped, inputs), expected, atol=1e-5, rtol=1e-5)


def check_with_peft(model: nn.Module, evidence: Evidence, inputs: dict[str, Tensor], folder: Path) -> None:
    """The outputs agree to 1e-5 of the largest, and in float64 to 1e-9.

    Logits of 22 are rounded to 2e-5 by float32 itself: so far are the same weights in float32 and in float64 apart.
    """
    observation = transmit(model, wnr_db=10.0, seed=1)
    asked = {"method": "posterior", "trainable": "adapter", "budget": 0.0234, "settings": SHORT}
    result = repair(observation, evidence, **asked)  # type: ignore[arg-type]
    assert result.details["chosen"] == "posterior"
    assert 0.02 < result.beside.share(model) <= 0.0234
    expected = logits(result.model, inputs)
    found = logits(loaded(observation.received, result.beside.save_peft(folder, observation.received)), inputs)
    assert float((found - expected).abs().max()) < 1e-5 * float(expected.abs().max())
    precise = Beside.from_state_dict({name: tensor.double() for name, tensor in result.beside.state_dict().items()})
    received = copy.deepcopy(observation.received).double()
    again = loaded(received, precise.save_peft(folder.with_name("precise"), received)).double()
    assert float((logits(again, inputs) - logits(precise.merge(received), inputs)).abs().max()) < 1e-9


@pytest.mark.assets
def test_a_language_model_loads_with_peft(tmp_path: Path) -> None:
    try:
        task = load_task("lm/stories15m@stories")
    except MissingData as error:
        pytest.skip(str(error))
    examples = task.tuning_examples(4, 0)
    assert isinstance(examples.inputs, dict)
    check_with_peft(task.load_model(), task.evidence(examples), examples.inputs, tmp_path / "adapter")


@pytest.mark.assets
def test_minilm_loads_with_peft(tmp_path: Path) -> None:
    """The encoder with a head that was not trained: what is tested is the folder."""
    folder = resolve_data_dir() / "minilm"
    if not (folder / "config.json").is_file():
        pytest.skip(f"no {folder}")
    torch.manual_seed(0)
    model = load_classifier(folder, new_head=True)
    inputs = {"input_ids": torch.randint(1000, 2000, (12, 16)), "attention_mask": torch.ones(12, 16, dtype=torch.long)}
    check_with_peft(model, Evidence(inputs, torch.arange(12) % 2), inputs, tmp_path / "adapter")


def test_what_peft_has_no_adapter_for_is_named(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LSTM(4, 4), nn.Linear(4, 4))
    lstm = Beside({"0.weight_ih_l0": torch.ones(16, 1)})
    slope = Beside({"1.weight": torch.ones(4, 1)}, replaced={"0.bias_ih_l0": torch.ones(16)})
    for beside, message in ((lstm, "0.weight_ih_l0"), (slope, "0.bias_ih_l0"), (Beside(), "nothing stands beside")):
        with pytest.raises(InvalidConfig, match=re.escape(message) + ".*state_dict"):
            beside.save_peft(tmp_path / "adapter", model)
    zeros = nn.Sequential(nn.Linear(2, 2))
    nn.init.zeros_(zeros[0].weight)
    with pytest.raises(InvalidConfig, match="no weights but zeros"):
        Beside({"0.weight": torch.ones(2, 1)}).save_peft(tmp_path / "adapter", zeros)


def test_a_folder_is_not_overwritten_unasked(tmp_path: Path) -> None:
    beside, model = Beside({"0.weight": torch.full((2, 1), 2.0)}), nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(InvalidConfig, match="overwrite=True"):
        beside.save_peft(tmp_path, model)
    beside.save_peft(tmp_path, model, overwrite=True)
    inputs = torch.randn(3, 2)
    torch.testing.assert_close(loaded(model, tmp_path)(inputs), beside.merge(model)(inputs))


def test_without_peft_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(MissingData, match=re.escape("quietnn[peft]")):
        Beside({"0.weight": torch.ones(2, 1)}).save_peft(tmp_path / "a", nn.Sequential(nn.Linear(2, 2)))


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/guides/beside-the-weights.md").read_text(encoding="utf-8")
    (block,) = [block for block in blocks(page) if not block.runs and block.language == "python"]
    monkeypatch.chdir(tmp_path)
    received = network("bert")
    repaired = repair(received, method="mmse", wnr_db=3.0, trainable="digital")
    names = {"received": received, "repaired": repaired}
    exec(compile(block.text, "beside-the-weights.md", "exec"), names)
    assert type(names["model"]).__name__.startswith("Peft")
