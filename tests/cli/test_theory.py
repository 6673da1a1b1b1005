"""`quietnn theory` from the outside."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.main import app
from quietnn.cli.theory import _table
from quietnn.errors import QuietnnError
from quietnn.experiments.theory_checks import TheoryChecks


def test_json_prints_the_checks_alone_and_the_files_are_written(tmp_path: Path) -> None:
    out = tmp_path / "theory"
    result = CliRunner().invoke(app, ["theory", "--out", str(out), "--samples", "200", "--json"])
    assert result.exit_code == 0
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    stored = [record for record in records.read(out / "records.jsonl") if record["kind"] == "check"]
    assert printed == stored
    assert {"closed_form", "monte_carlo", "standard_error", "z"} <= printed[0].keys()
    names = {file.name for file in out.iterdir()}
    assert names == {"records.jsonl", *(f"figure-{n}.{s}" for n in (2, 3, 5, 6) for s in ("png", "svg"))}


def test_table_fits_eighty_columns() -> None:
    checks = list(TheoryChecks(num_samples=1_000).checks())
    checks[0] |= {"monte_carlo": 0.04096, "standard_error": 0.0002, "z_printed": 2828.2}
    console = Console(width=80, file=StringIO(), record=True)
    console.print(_table(checks))
    text = console.export_text()
    assert "…" not in text
    for heading in ("Theorem 1", "Theorem 2", "Lemma 1", "figure 3, P3", "Monte Carlo"):
        assert heading in text


def test_bad_arguments_write_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(QuietnnError, match="which is a file; it must be a directory"):
        CliRunner().invoke(app, ["theory", "--out", str(file)], catch_exceptions=False)
    with pytest.raises(QuietnnError, match="num_samples is 3"):
        CliRunner().invoke(app, ["theory", "--out", str(tmp_path / "new"), "--samples", "3"], catch_exceptions=False)
    assert file.read_text() == "mine"
    assert not (tmp_path / "new").exists()
