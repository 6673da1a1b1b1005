"""`quietnn repair --text`: a language model and plain text."""

import json
from pathlib import Path

import pytest
import torch
from tests.small_language_models import story, write_language_model
from typer.testing import CliRunner

from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData, QuietnnError
from quietnn.tasks.language_model import language_model

transformers = pytest.importorskip("transformers")

RUN = CliRunner()


def call(verb: str, *arguments: object) -> str:
    result = RUN.invoke(app, [verb, *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.fixture(name="clean", scope="module")
def _clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    write_language_model(folder, "llama")
    return folder


@pytest.fixture(name="noisy")
def _noisy(clean: Path, tmp_path: Path) -> Path:
    call("transmit", clean, tmp_path / "noisy", "--wnr-db", "2", "--seed", "1")
    (tmp_path / "notes.txt").write_text(story(60, 100))
    return tmp_path / "noisy"


def test_a_folder_comes_out_that_transformers_loads_and_that_predicts_better(noisy: Path, tmp_path: Path) -> None:
    told = call("repair", noisy, tmp_path / "out", "--text", tmp_path / "notes.txt", "--recorded", "--save-memory")
    assert "perplexity on " in told
    assert "no better than" not in told
    assert "Repaired('posterior'" in told
    (tmp_path / "test.txt").write_text(story(60, 200))
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    losses = []
    for folder in (noisy, tmp_path / "out"):
        task = language_model(folder, test=tmp_path / "test.txt")
        losses.append(task.score_of(task.load_model(), task.test_examples(None)).loss)
    assert losses[1] < losses[0] - 0.1


def test_a_repair_that_is_no_better_is_told_of(noisy: Path, tmp_path: Path) -> None:
    told = call("repair", noisy, tmp_path / "out", "--text", tmp_path / "notes.txt", "--recorded", "--method", "ml")
    assert "no better than the received model" in told


def test_noise_by_tensor_from_a_file(noisy: Path, tmp_path: Path) -> None:
    received = transformers.AutoModelForCausalLM.from_pretrained(noisy)
    names = [name for name, one in received.named_parameters() if one.dim() == 2]
    (tmp_path / "noise.json").write_text(json.dumps({name: 0.0 if "down" in name else 0.01 for name in names}))
    options = ("--text", tmp_path / "notes.txt", "--method", "directions")
    call("repair", noisy, tmp_path / "out", *options, "--noise-file", tmp_path / "noise.json")
    repaired = dict(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").named_parameters())
    same = {name for name, one in received.named_parameters() if torch.equal(one, repaired[name])}
    assert {name for name in names if "down" in name} <= same
    assert not any("up_proj" in name or "q_proj" in name for name in same)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ("[1]", "table of numbers"), ('{"a": "b"}', "table of numbers"), ("{}", "table of numbers")],
)
def test_a_noise_file_that_is_none_is_refused(noisy: Path, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "noise.json").write_text(content)
    options = ("--text", tmp_path / "notes.txt", "--noise-file", tmp_path / "noise.json")
    with pytest.raises(InvalidConfig, match=message):
        call("repair", noisy, tmp_path / "out", *options)
    with pytest.raises(MissingData, match=r"nowhere\.json"):
        call("repair", noisy, tmp_path / "out", *options[:2], "--noise-file", tmp_path / "nowhere.json")
    assert not (tmp_path / "out").exists()


def _without_tokenizer(folder: Path, notes: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def _short(folder: Path, notes: Path) -> None:
    notes.write_text("The cat.")


def _few_windows(folder: Path, notes: Path) -> None:
    notes.write_text(story(5, 1))


def _binary(folder: Path, notes: Path) -> None:
    notes.write_bytes(b"\x89PNG\x00\xff")


def _other_vocabulary(folder: Path, notes: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 9}))


def _not_a_number(folder: Path, notes: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = torch.nan
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (_without_tokenizer, MissingData, "no tokenizer"),
        (_short, InvalidConfig, "a window has 32"),
        (_few_windows, InvalidConfig, "5 are needed"),
        (_binary, InvalidConfig, "not UTF-8"),
        (_other_vocabulary, InvalidConfig, "vocabulary ends at 8"),
        (_not_a_number, InvalidWeights, "NaN|not finite"),
    ],
    ids=lambda one: one.__name__ if callable(one) and not isinstance(one, type) else "",
)
def test_bad_input_is_told_and_nothing_is_written(
    noisy: Path, tmp_path: Path, damage: object, kind: type[QuietnnError], message: str
) -> None:
    damage(noisy, tmp_path / "notes.txt")  # type: ignore[operator]
    with pytest.raises(kind, match=message):
        call("repair", noisy, tmp_path / "out", "--text", tmp_path / "notes.txt", "--wnr-db", "2")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--text", "notes.txt", "--task", "digits"), "leave out --task"),
        (("--task", "digits", "--window", "8"), "--text"),
    ],
)
def test_options_that_do_not_go_together_are_refused(noisy: Path, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        call("repair", noisy, noisy.parent / "out", *options, "--wnr-db", "2")


def test_the_demo_lets_each_network_write(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(story(40, 100))
    options = ("--language-model", clean, "--text", tmp_path / "notes.txt", "--wnr-db", "0", "--prompt", "The cat")
    told = call("demo", *options)
    for name in ("clean", "with noise, 0 dB", "MMSE by input direction", "Posterior"):
        assert f"{name} (perplexity " in told
    assert told.count("    The cat") == 4


def test_a_folder_that_says_it_was_quantised_is_written_without_that_claim(noisy: Path, tmp_path: Path) -> None:
    config = json.loads((noisy / "config.json").read_text())
    (noisy / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "gptq"}}))
    call("repair", noisy, tmp_path / "out", "--method", "mmse_layerwise", "--recorded")
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == config
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
