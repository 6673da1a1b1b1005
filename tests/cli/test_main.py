"""What every verb has in common: a version, and errors that are messages with exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import save_file

import quietnn
from quietnn.cli.main import app
from quietnn.tasks.digits import digits_task
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.weights_file import write_weights


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "quietnn.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_version() -> None:
    assert run("--version").stdout == f"quietnn {quietnn.__version__}\n"


@pytest.mark.parametrize("verb", [("demo",), ("gaussianity", "digits")])
def test_an_output_folder_that_is_a_file_is_a_message_not_a_traceback(tmp_path: Path, verb: tuple[str, ...]) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    result = run(*verb, "--out", str(taken))
    assert result.returncode == 2
    assert str(taken) in result.stderr
    assert "Traceback" not in result.stderr
    assert taken.read_text() == "mine"


def test_a_sweep_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('name = "x"\ntask = "cifar10/resnet20"\nwnr_db = [4]\nmethods = ["ml"]\n')
    out = tmp_path / "run"
    result = run("sweep", str(config), "--out", str(out), "--data-dir", str(tmp_path), "--engine", "inline")
    assert result.returncode == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "encoding"), [(b"bad\xff", "utf-8"), ("größe 名".encode(), "ascii")], ids=["no-text", "ascii"]
)
def test_names_that_the_terminal_cannot_show(tmp_path: Path, name: bytes, encoding: str) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / f"{os.fsdecode(name)}.safetensors"
    save_file({"schön.weight": torch.randn(3, 3)}, source)
    command = [sys.executable, "-m", "quietnn.cli.main"]
    for arguments in (["denoise", source, out, "--noise-variance", "0.1"], ["inspect", out]):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        result = subprocess.run([*command, *map(str, arguments)], capture_output=True, env=environment, check=False)
        assert result.returncode == 0, result.stderr


CONFIG = 'name = "x"\ntask = "{task}"\nwnr_db = [4]\nmethods = ["ml"]\n{more}'


@pytest.mark.parametrize(
    ("made", "verb", "told"),
    [
        ("typo", ("sweep", "typo.toml", "--out", "run"), "did you mean 'num_draws'"),
        ("task", ("sweep", "task.toml", "--out", "run"), "did you mean 'digits'"),
        ("unfit", ("evaluate", "digits", "--weights", "unfit.safetensors"), "missing: conv1.weight"),
        ("short", ("evaluate", "digits", "--weights", "short.safetensors"), "not a whole safetensors file"),
        ("archive", ("evaluate", "cifar10/resnet20"), "cifar-10-binary.tar.gz"),
    ],
)
def test_bad_input_is_a_message_and_leaves_nothing(tmp_path: Path, made: str, verb: tuple[str, ...], told: str) -> None:
    (tmp_path / "typo.toml").write_text(CONFIG.format(task="digits", more="num_drawz = 2"))
    (tmp_path / "task.toml").write_text(CONFIG.format(task="digitz", more=""))
    state = digits_task().load_model().state_dict()
    del state["conv1.weight"]
    write_weights(tmp_path / "unfit.safetensors", state, metadata={})
    (tmp_path / "short.safetensors").write_bytes((tmp_path / "unfit.safetensors").read_bytes()[:5000])
    resnet20 = IMAGE_MODELS["resnet20"]().state_dict()
    (tmp_path / "weights").mkdir()
    write_weights(tmp_path / "weights" / "resnet20-cifar10.safetensors", resnet20, metadata={})
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"truncated")
    before = sorted(tmp_path.rglob("*"))
    arguments = [str(tmp_path / word) if "." in word or word == "run" else word for word in verb]
    result = run(*arguments, "--data-dir", str(tmp_path))
    assert result.returncode == 2, result.stderr
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_help_says_what_every_argument_is() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    given = [(name, one) for name, verb in commands.items() for one in verb.params if one.param_type_name == "argument"]
    assert ("repair", "what") in [(name, one.name) for name, one in given]
    assert [(name, one.name) for name, one in given if not one.help and not commands[name].hidden] == []
