"""Language models from a folder and text files."""

import json
import math
from pathlib import Path

import pytest
import torch
from tests.small_language_models import FAMILIES, story, write_language_model
from torch import nn

import quietnn
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData
from quietnn.tasks.base import Task
from quietnn.tasks.language_model import IGNORED, evaluate_tokens, language_model, num_tokens
from quietnn.tasks.registry import load_task
from quietnn.tasks.transformers_folder import load_language_model

pytest.importorskip("transformers")


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "llama"
    write_language_model(folder, "llama")
    (folder / "tuning.txt").write_text(story(60, 100))
    (folder / "test.txt").write_text(story(60, 200))
    return folder


def _task(folder: Path) -> Task:
    return language_model(folder, tuning=folder / "tuning.txt", test=folder / "test.txt")


def test_every_token_but_the_first_of_a_window_is_predicted_once(folder: Path) -> None:
    examples = _task(folder).test_examples(None)
    assert isinstance(examples.inputs, dict)
    tokens, mask = examples.inputs["input_ids"], examples.inputs["attention_mask"]
    assert tokens.shape[1] == 32
    assert torch.equal(examples.labels[0, :-1], tokens[0, 1:])
    assert int(examples.labels[0, -1]) == IGNORED
    assert num_tokens(examples.labels) == int(mask.sum()) - len(mask)


def test_the_score_is_the_perplexity_that_transformers_tells(folder: Path) -> None:
    task = _task(folder)
    model, examples = task.load_model(), task.test_examples(None)
    assert isinstance(examples.inputs, dict)
    score = task.score_of(model, examples)
    rows = examples.inputs["input_ids"][:-1]  # whole windows, equally many tokens in each
    expected = model(input_ids=rows, labels=rows).loss.item()
    found = evaluate_tokens(model, examples.take(slice(len(rows))), batch_size=3)
    assert found.loss == pytest.approx(expected, rel=1e-5)
    assert found.num_examples == 31 * len(rows)
    assert score.accuracy is None
    assert score.value == pytest.approx(math.exp(score.loss))


def test_padding_counts_nowhere(folder: Path) -> None:
    task = _task(folder)
    model, examples = task.load_model(), task.test_examples(None)
    assert isinstance(examples.inputs, dict)
    short = examples.take(slice(len(examples) - 1, None))
    kept = int(short.inputs["attention_mask"].sum())  # type: ignore[call-overload]
    assert kept < 32
    trimmed = type(short)({name: one[:, :kept] for name, one in short.inputs.items()}, short.labels[:, :kept])  # type: ignore[union-attr]
    assert task.score_of(model, short).loss == pytest.approx(task.score_of(model, trimmed).loss, rel=1e-5)


def test_a_marker_ends_a_document_and_blank_lines_do_not(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    path.write_text(f"{story(20, 1)}\n<|end|>\n{story(20, 2)}")
    whole = language_model(folder, test=path).test_examples(None)
    parts = language_model(folder, test=path, marker="<|end|>").test_examples(None)
    files = tmp_path / "files"
    files.mkdir()
    for number in (1, 2):
        (files / f"{number}.txt").write_text(story(20, number))
    by_file = language_model(folder, test=files).test_examples(None)
    assert torch.equal(parts.labels, by_file.labels)
    assert len(whole) < len(parts)  # the first document's last window is cut short


@pytest.mark.parametrize("family", FAMILIES)
def test_the_posterior_lowers_the_loss_of_every_family(family: str, tmp_path: Path) -> None:
    write_language_model(tmp_path, family)
    (tmp_path / "tuning.txt").write_text(story(40, 100))
    (tmp_path / "test.txt").write_text(story(40, 200))
    task = _task(tmp_path)
    model, test = task.load_model(), task.test_examples(None)
    clean = task.score_of(model, test).loss
    for wnr_db in (2.0, -2.0, -6.0, -10.0):  # families bear different noise
        observation = quietnn.transmit(model, wnr_db=wnr_db, seed=1)
        received = task.score_of(observation.model, test).loss
        if received > clean + 0.2:
            break
    assert received > clean + 0.2, "the noise has to hurt for this to say anything"
    evidence = task.evidence(task.tuning_examples(40, 0))
    repaired = quietnn.repair(observation, evidence, method="posterior")
    assert task.score_of(repaired.model, test).loss < received - 0.3 * (received - clean)


def test_without_noise_no_bit_changes(folder: Path) -> None:
    task = _task(folder)
    model = task.load_model()
    observation = quietnn.observe(model, noise_variance=0.0)
    repaired = quietnn.repair(observation, task.evidence(task.tuning_examples(8, 0)), method="posterior")
    assert all(
        torch.equal(one, other) for one, other in zip(model.parameters(), repaired.model.parameters(), strict=True)
    )


def test_importable_from_the_package_whatever_was_imported_before(folder: Path) -> None:
    import quietnn.tasks
    from quietnn.tasks.language_model import perplexity

    task = quietnn.tasks.language_model(folder, tuning=folder / "tuning.txt")
    assert len(task.tuning_examples(3, 0)) == 3
    assert perplexity(0.0) == 1.0


def test_named_by_its_folder(folder: Path) -> None:
    task = load_task(f"lm/{folder.name}", data_dir=folder.parent)
    assert task.name == "lm/llama"
    assert len(task.tuning_examples(3, 0)) == 3
    other = load_task(f"lm/{folder}@{folder}", data_dir=folder.parent)
    assert torch.equal(other.test_examples(None).labels, task.test_examples(None).labels)


def test_sixteen_bits_run_in_thirty_two(folder: Path, tmp_path: Path) -> None:
    model = load_language_model(folder)
    model.to(torch.bfloat16).save_pretrained(tmp_path)  # type: ignore[operator]
    assert {one.dtype for one in load_language_model(tmp_path).parameters()} == {torch.float32}


def test_a_claim_to_be_quantised_is_left_aside(folder: Path, tmp_path: Path) -> None:
    model = load_language_model(folder)
    model.save_pretrained(tmp_path)  # type: ignore[operator]
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "gptq", "bits": 4}})
    )
    loaded = load_language_model(tmp_path)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), loaded.parameters(), strict=True))


@pytest.fixture(name="bare")
def _bare(folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to be damaged."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_folder_without_tokenizer_is_refused(bare: Path) -> None:
    for path in bare.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(MissingData, match="no tokenizer"):
        _task(bare).test_examples(None)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"config\.json"):
        language_model(tmp_path / "nowhere")


def test_text_shorter_than_a_window_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("The cat found a ball.")
    with pytest.raises(InvalidConfig, match=r"has 6 tokens, and a window has 32.*window="):
        language_model(folder, test=tmp_path / "short.txt").test_examples(None)
    assert len(language_model(folder, test=tmp_path / "short.txt", window=3).test_examples(None)) == 2


def test_text_that_holds_nothing_is_told_so_without_another_window(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(InvalidConfig, match=r"has 0 tokens.*give more text$"):
        language_model(folder, test=tmp_path / "empty.txt").test_examples(None)


@pytest.mark.parametrize(
    "described",
    [{"text_config": {"vocab_size": 57, "max_position_embeddings": 16}}, {"vocab_size": 57, "max_seq_len": 16}],
)
def test_other_configurations_tell_their_window_too(folder: Path, tmp_path: Path, described: dict[str, object]) -> None:
    for path in folder.glob("tokenizer*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(described))
    examples = language_model(tmp_path, tuning=folder / "tuning.txt").tuning_examples(2, 0)
    assert examples.labels.shape[1] == 16


def test_a_window_longer_than_the_model_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="takes 2 to 32 tokens"):
        language_model(folder, window=64)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary", b"text with a zero \x00 byte"])
def test_binary_text_is_refused(folder: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "binary.txt").write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"binary\.txt"):
        language_model(folder, test=tmp_path / "binary.txt").test_examples(None)


def test_a_vocabulary_that_does_not_fit_is_refused(bare: Path) -> None:
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps({**config, "vocab_size": 8}))
    with pytest.raises(InvalidConfig, match="vocabulary ends at 7"):
        _task(bare).test_examples(None)
    with pytest.raises(InvalidWeights):
        load_language_model(bare)


def test_a_task_without_text_says_what_to_give(folder: Path) -> None:
    with pytest.raises(MissingData, match=r"tuning='notes\.txt'"):
        language_model(folder).tuning_examples(1, 0)
    with pytest.raises(MissingData, match=r"nowhere\.txt"):
        language_model(folder, tuning="nowhere.txt").tuning_examples(1, 0)


def test_losses_that_overflow_are_infinite(folder: Path) -> None:
    task = _task(folder)
    model = task.load_model()
    with torch.no_grad():
        next(iter(model.parameters())).fill_(math.nan)
    score = task.score_of(model, task.test_examples(2))
    assert math.isinf(score.loss)
    assert math.isinf(score.number)


def test_a_model_is_a_module_in_evaluation_mode(folder: Path) -> None:
    model = _task(folder).load_model()
    assert isinstance(model, nn.Module)
    assert not model.training
