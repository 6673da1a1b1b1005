"""The README's promises: its Python, its commands, its figures of accuracy, its table and picture, and its links."""

import importlib.util
import re
import shlex
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from tests.small_language_models import story, write_language_model
from typer.testing import CliRunner

import quietnn
from quietnn.cli.main import app
from quietnn.reports.figures import render

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
(SNIPPET,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

LESS = {
    "sweep": ["--engine", "inline", "--set", "wnr_db=[2, 8]", "--set", 'methods=["ml"]', "--set", "num_draws=1"],
    "federate": ["--set", "num_rounds=1", "--set", "wnr_db=[0]", "--set", 'methods=["ml"]'],
}
"""What makes a command of minutes one of seconds."""


@pytest.fixture(name="tool", scope="module")
def _tool() -> ModuleType:
    """`tools/readme.py`, which draws the picture and prints the table."""
    spec = importlib.util.spec_from_file_location("readme_tool", ROOT / "tools" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_snippet_prints_what_the_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(SNIPPET, "README.md", "exec"), {})
    assert f"This prints `{capsys.readouterr().out.strip()}`" in README


def test_the_snippet_takes_eight_lines() -> None:
    assert len([line for line in SNIPPET.splitlines() if line]) <= 8


def test_the_table_is_that_of_the_records(tool: ModuleType) -> None:
    assert tool.table() in README
    for column in tool.COLUMNS:
        assert f"`{column.run}`" in README, "the runs that the table is from are named under it"
        assert column.by_inputs in ("self_trained", "branches_balanced"), "the methods that are named under it"


def test_the_harm_of_mmse_is_that_of_the_records(tool: ModuleType) -> None:
    received, shrunk = (tool.accuracies("resnet18", method)[0.0] for method in ("ml", "mmse"))
    assert f"ResNet18 at 0 dB from {received:.0f} % to {shrunk:.0f} %" in README


def test_the_picture_is_drawn_from_the_records(tool: ModuleType) -> None:
    import matplotlib as mpl

    committed = tool.FIGURE.read_bytes()
    assert len(committed) < 60_000
    assert tool.FIGURE.relative_to(ROOT).as_posix() in README
    pinned = re.search(r"^matplotlib==(.*)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert pinned is not None
    if mpl.__version__ != pinned[1]:
        pytest.skip(f"the picture was drawn by matplotlib {pinned[1]}, this is {mpl.__version__}")
    assert render(tool.figure(), "svg") == committed, "python tools/readme.py draws it again"


def test_the_commands_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    (block,) = re.findall(r"## From the command line\n.*?```sh\n(.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(quietnn.__file__).parent / "tasks/data/digits-resnet.safetensors", "model.safetensors")
    write_language_model(tmp_path / "clean-model", "llama")
    Path("notes.txt").write_text(story(60, 100))
    call("transmit", "clean-model", "noisy-model", "--wnr-db", "6", "--seed", "1")
    for line in block.splitlines():
        program, verb, *arguments = shlex.split(line, comments=True)
        assert program == "quietnn"
        call(verb, *arguments, *LESS.get(verb, ()))
    made = ("out.safetensors", "repaired-model", "mmse.safetensors", "runs/digits/report.html", "runs/federated-digits")
    assert all(Path(name).exists() for name in made)


def call(*arguments: str) -> None:
    ended = CliRunner().invoke(app, list(arguments))
    assert ended.exit_code == 0, f"quietnn {shlex.join(arguments)}: {ended.exception!r}\n{ended.output}"


def test_every_file_it_names_exists() -> None:
    named = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"configs/[\w.-]+\.toml", README)
    places = (ROOT, ROOT / "src" / "quietnn")  # a configuration is found wherever one is
    missing = [name for name in named if not name.startswith("http") and not any((at / name).exists() for at in places)]
    assert not missing


def test_it_is_short_enough_to_be_read() -> None:
    assert README.count("\n") <= 110
