"""Run folders as they are read, and what of their plan is missing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quietnn.errors import InvalidConfig, MissingData
from quietnn.records import Record, append
from quietnn.reports.runs import Run, load_run, missing_sentence, planned_cells

Make = Callable[..., list[Record]]
Write = Callable[..., Path]


def test_a_torn_last_line_is_left_out(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(methods=("ml",), num_draws=1))
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"method": "ml", "wnr')
    assert len(load_run(folder).records) == 8
    assert load_run(folder / "records.jsonl").name == "digits"


def test_a_folder_without_records_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"looked for .*records\.jsonl"):
        load_run(tmp_path)
    (tmp_path / "records.jsonl").touch()
    with pytest.raises(MissingData, match="holds no whole record"):
        load_run(tmp_path)
    append(tmp_path / "records.jsonl", [{"experiment": "theory_checks"}])
    with pytest.raises(MissingData, match="only records of theory_checks"):
        load_run(tmp_path)


@pytest.mark.parametrize("content", ["[1]", "{"])
def test_a_broken_configuration_is_refused(content: str, make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(methods=("ml",), num_draws=1))
    (folder / "config.json").write_text(content)
    with pytest.raises(InvalidConfig, match=r"config\.json"):
        load_run(folder)
    (folder / "config.json").unlink()
    assert load_run(folder).config == {}


@pytest.mark.parametrize(("methods", "num_draws"), [(["ml"] * 1000, 1000), ([], 10**9)])
def test_a_plan_that_no_run_could_fill_is_none(methods: list[str], num_draws: int) -> None:
    config = {"wnr_db": [0.0] * 1000, "methods": methods, "num_draws": num_draws, "num_rounds": 3}
    run = Run("huge", Path(), config, ())
    assert planned_cells(run) is None
    assert missing_sentence(run) == ""
