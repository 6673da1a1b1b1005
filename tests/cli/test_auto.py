"""`quietnn auto`, the former name of `quietnn repair`, on the embedded digits."""

from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from quietnn.channels.transmit import transmit
from quietnn.checkpoints.history import history, with_step
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig
from quietnn.tasks.digits import digits_task
from quietnn.tasks.weights_file import load_weights

RUN = CliRunner()


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    observation = transmit(digits_task().load_model(), wnr_db=4.0, seed=0)
    path = tmp_path_factory.mktemp("noisy") / "noisy.safetensors"
    metadata = with_step({"input_normalisation": "none, raw [0, 1]"}, {"verb": "transmit", "seed": 0})
    save_file(observation.received.state_dict(), path, metadata=metadata)
    return path, observation.noise_variance


def call(*arguments: str) -> str:
    result = RUN.invoke(app, ["auto", "digits", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_inputs_without_labels_are_enough_to_repair_a_file(tmp_path: Path, noisy: tuple[Path, float]) -> None:
    weights, noise_variance = noisy
    out = tmp_path / "repaired.safetensors"
    told = call(str(out), "--weights", str(weights), "--noise-variance", str(noise_variance), "--no-labels")
    assert "* structured" in told
    repaired = digits_task().load_model()
    metadata = load_weights(repaired, out)
    assert metadata["input_normalisation"] == "none, raw [0, 1]", "what the file said of its network stays"
    assert [step["verb"] for step in history(metadata)] == ["transmit", "repair"]
    assert history(metadata)[-1]["method"] == "structured"
    test = digits_task().test_examples(200)
    task = digits_task(weights)
    assert task.evaluate(repaired, test).accuracy > task.evaluate(task.load_model(), test).accuracy + 0.2


def test_labels_give_a_table_and_an_accuracy_to_expect(tmp_path: Path, noisy: tuple[Path, float]) -> None:
    weights, noise_variance = noisy
    out = tmp_path / "repaired.safetensors"
    options = ("--noise-variance", str(noise_variance), "--num-examples", "40", "--max-passes", "8")
    told = call(str(out), "--weights", str(weights), *options)
    assert "held-out loss" in told
    assert "expected accuracy" in told
    assert "not tried" in told


def test_balanced_classes_take_the_place_of_labels(tmp_path: Path, noisy: tuple[Path, float]) -> None:
    out = tmp_path / "repaired.safetensors"
    options = ("--weights", str(noisy[0]), "--noise-variance", str(noisy[1]), "--balanced-classes")
    with pytest.raises(InvalidConfig, match="--no-labels"):
        call(str(out), *options)
    assert not out.exists()
    assert "* self_trained" in call(str(out), *options, "--no-labels", "--num-examples", "20")
    assert history(load_weights(digits_task().load_model(), out))[-1]["method"] == "self_trained"


def test_a_file_is_not_replaced_unasked(tmp_path: Path, noisy: tuple[Path, float]) -> None:
    out = tmp_path / "precious.safetensors"
    out.write_text("precious")
    with pytest.raises(InvalidConfig, match="there already"):
        call(str(out), "--weights", str(noisy[0]), "--noise-variance", "0.1")
    assert out.read_text() == "precious"
