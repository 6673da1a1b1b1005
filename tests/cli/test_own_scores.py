"""A task that is judged by a score of its own, from the command line: numbers without an invented accuracy."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from quietnn.cli.main import app

RUN = CliRunner()
MODULE = """
import torch
from torch import nn
from torch.nn import functional
from quietnn import Examples, Score, Task

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()

def examples(num_examples, seed):
    inputs = torch.randn(num_examples or 40, 4, generator=torch.Generator().manual_seed(seed))
    return Examples(inputs, make()(inputs).argmax(1))

def perplexity(network, examples):
    loss = float(functional.cross_entropy(network(examples.inputs).detach(), examples.labels))
    return Score(None, loss, len(examples), value=2.718281828 ** loss)

def task(evaluate=perplexity):
    return Task("words", make, examples, lambda num_examples: examples(num_examples, 99), evaluate=evaluate)

def bare():
    return task(lambda network, examples: 0.5)
"""
CONFIG = """
name = "words"
task = "{task}"
methods = ["ml", "mmse", "mmse_pb", "posterior", "auto"]
wnr_db = [0.0, 6.0]
num_draws = 2
num_tuning_examples = 20
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The module of the task, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "words_by_perplexity.py").write_text(MODULE)
    yield "words_by_perplexity"
    sys.modules.pop("words_by_perplexity", None)


def run(*arguments: str) -> str:
    result = RUN.invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, result.output
    assert "nan" not in result.output.lower()
    return result.output


def noisy(words: str) -> str:
    __import__(words)
    state = sys.modules[words].make().state_dict()
    save_file({name: one + 0.3 * torch.randn_like(one) for name, one in state.items()}, "noisy.safetensors")
    return "noisy.safetensors"


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_tune(words: str, groups: str) -> None:
    told = run(
        *("tune", f"{words}:task", "--weights", noisy(words), "--noise-variance", "0.09", "--out", "found.json"),
        *("--num-examples", "20", "--groups", groups),
    )
    found = json.loads(Path("found.json").read_text())["found"]
    assert f"{found['score']:.4g} on 20 tuning examples" in " ".join(told.split())
    assert "%" not in told
    assert "accuracy" not in found


def test_evaluate(words: str) -> None:
    assert "words: score 2.555 on 40 examples" in run("evaluate", f"{words}:task")
    fields = json.loads(run("evaluate", f"{words}:task", "--json"))
    assert fields["accuracy"] is None
    assert fields["score"] == pytest.approx(2.718281828 ** fields["loss"])


def test_repair(words: str) -> None:
    told = run("repair", noisy(words), "out.safetensors", "--task", f"{words}:task", "--noise-variance", "0.09")
    assert Path("out.safetensors").exists()
    assert "traceback" not in told.lower()


def test_a_sweep_and_what_reads_it(words: str) -> None:
    Path("words.toml").write_text(CONFIG.format(task=f"{words}:task"))
    assert "next: quietnn analyze run" in run("sweep", "words.toml", "--out", "run", "--workers", "1")
    lines = [json.loads(line) for line in Path("run/records.jsonl").read_text().splitlines()]
    assert {line["accuracy"] for line in lines} == {None}
    assert all(line["score"] == pytest.approx(2.718281828 ** line["loss"]) for line in lines)
    assert not [line for line in lines if "failed" in line]
    before = Path("run/records.jsonl").read_bytes()
    run("sweep", "words.toml", "--out", "run", "--workers", "1")
    assert Path("run/records.jsonl").read_bytes() == before, "such records are whole, and not made again"
    run("report", "run", "--out", "page.html")
    page = Path("page.html").read_text()
    assert "have no chart here" not in page
    told = run("analyze", "run")
    assert "Without noise: perplexity 2.55 on 40 test tokens; gains are read at 1.5 times that." in " ".join(
        told.split()
    )
    assert "%" not in Path("run/perplexity.csv").read_text()
    told = run("figures", "run", "--formats", "svg")
    assert told.splitlines()[0] == "run/figures/perplexity.svg"


def test_a_score_must_be_a_score(words: str) -> None:
    refused = RUN.invoke(app, ["evaluate", f"{words}:bare"])
    assert "the score of words is a float; evaluate returns Score(accuracy, loss" in str(refused.exception)
