"""The example for language models runs as it stands, on a small one."""

import runpy
import sys
from pathlib import Path

import pytest
from tests.small_language_models import story, write_language_model

pytest.importorskip("transformers")

EXAMPLE = Path(__file__).parents[2] / "examples" / "repair_a_language_model.py"


def test_it_tells_the_perplexity_of_every_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_language_model(tmp_path, "llama")
    (tmp_path / "notes.txt").write_text(story(40, 100))
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path), str(tmp_path / "notes.txt")])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "perplexity" in line]
    assert [row[0] for row in rows] == ["clean", "received", "directions", "posterior"]
    assert all(float(row[2]) >= 1.0 for row in rows)
    assert all(row[3] == "The" for row in rows)
