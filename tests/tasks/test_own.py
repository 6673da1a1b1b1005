"""Tasks of your own: found in the current folder, refused with a reason, used wherever a named one is."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn
from typer.testing import CliRunner

from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData
from quietnn.tasks.registry import load_task, split_name

MODULE = """
import torch
from torch import nn
from quietnn.tasks.base import Examples, Task

number = 7

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)
        self.head.weight = self.words.weight

    def forward(self, inputs):
        return self.head(inputs)

def make():
    torch.manual_seed(0)
    return Tied().eval()

def examples(num_examples, seed):
    inputs = torch.randn(num_examples or 40, 4, generator=torch.Generator().manual_seed(seed))
    return Examples(inputs, make()(inputs).argmax(dim=1))

def task():
    return Task("mine", make, examples, lambda num_examples: examples(num_examples, 99))

def told(data_dir=None, weights=None):
    return Task(f"{data_dir} {weights}", make, examples, lambda num_examples: examples(num_examples, 99))

def needs(size):
    return task()

def nothing():
    return None
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a module in the current folder."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield name
    sys.modules.pop(name, None)


def test_a_function_in_the_current_folder_makes_a_task(mine: str) -> None:
    task = load_task(f"{mine}:task")
    assert task.name == "mine"
    assert task.evaluate(task.load_model(), task.test_examples(None)).accuracy == 1.0


def test_it_is_told_where_data_and_weights_are_if_it_asks(mine: str, tmp_path: Path) -> None:
    assert load_task(f"{mine}:told", data_dir=tmp_path, weights="w.safetensors").name == f"{tmp_path} w.safetensors"


@pytest.mark.parametrize("kind", ["file", "folder", "torch"])
def test_other_weights_are_loaded_into_its_network(mine: str, tmp_path: Path, kind: str) -> None:
    other = load_task(f"{mine}:task").load_model()
    with torch.no_grad():
        other.get_parameter("words.weight").neg_()
    path = tmp_path / "other.pt" if kind == "torch" else tmp_path / "other" / "model.safetensors"
    path.parent.mkdir(exist_ok=True)
    torch.save(other.state_dict(), path) if kind == "torch" else save_model(other, str(path))
    task = load_task(f"{mine}:task", weights=path.parent if kind == "folder" else path)
    loaded = task.load_model()
    assert loaded.get_parameter("head.weight").equal(other.get_parameter("words.weight"))
    assert task.evaluate(loaded, task.test_examples(None)).accuracy < 0.5


def test_weights_that_do_not_fit_are_refused_at_once(mine: str, tmp_path: Path) -> None:
    save_file(nn.Linear(2, 2).state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(InvalidWeights, match="does not fit this model"):
        load_task(f"{mine}:task", weights=tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("no_such_module:task", MissingData, "cannot import no_such_module .*No module named 'no_such_module'; looked"),
        ("{}:tusk", InvalidConfig, "has no 'tusk'; did you mean 'task'"),
        ("{}:number", InvalidConfig, "is a int, which cannot be called; name a function"),
        (
            "{}:nothing",
            InvalidConfig,
            "returned a NoneType; it must return a Task: from quietnn.tasks.base import Task",
        ),
        ("{}:needs", InvalidConfig, "missing a required argument: 'size'; give its other arguments defaults"),
        ("{}:", InvalidConfig, "write package.module:function"),
        (":task", InvalidConfig, "write package.module:function"),
        ("../{}:task", InvalidConfig, "write package.module:function"),
    ],
)
def test_what_is_no_task_is_refused_with_a_reason(mine: str, name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load_task(name.format(mine))


def test_a_module_that_lacks_another_says_which(tmp_path: Path, mine: str) -> None:
    (tmp_path / f"{mine}_broken.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(MissingData, match="No module named 'not_installed_anywhere'"):
        load_task(f"{mine}_broken:task")


def test_only_named_tasks_can_be_split_into_family_and_member(mine: str) -> None:
    with pytest.raises(InvalidConfig, match="a task of your own"):
        split_name(f"{mine}:task")


def test_evaluate_sweep_and_tune_take_it_from_the_command_line(mine: str, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "quietnn.cli.main", "evaluate", f"{mine}:task", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(shown.stdout)["accuracy"] == 1.0

    (tmp_path / "sweep.toml").write_text(
        f'name="x"\ntask="{mine}:task"\nwnr_db=[0]\nmethods=["ml","mmse"]\nnum_draws=1'
    )
    run = CliRunner().invoke(app, ["sweep", "sweep.toml", "--out", "run", "--engine", "inline"])
    assert run.exit_code == 0, run.output
    assert {json.loads(line)["task"] for line in (tmp_path / "run/records.jsonl").read_text().splitlines()} == {
        f"{mine}:task"
    }

    save_model(load_task(f"{mine}:task").load_model(), str(tmp_path / "noisy.safetensors"))
    options = ["--weights", "noisy.safetensors", "--noise-variance", "0.01", "--out", "t.json", "--num-examples", "20"]
    tuned = CliRunner().invoke(app, ["tune", f"{mine}:task", *options])
    assert tuned.exit_code == 0, tuned.output
    assert (tmp_path / "t.json").is_file()
