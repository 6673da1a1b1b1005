"""The theory checks as records."""

import json
from pathlib import Path

import pytest

from quietnn import records
from quietnn.errors import QuietnnError
from quietnn.experiments.theory_checks import theory_records


@pytest.fixture(scope="module")
def run() -> list[records.Record]:
    return list(theory_records(seed=1, num_samples=4_000))


def test_every_closed_form_stands_within_four_standard_errors(run: list[records.Record]) -> None:
    checks = [record for record in run if record["kind"] == "check"]
    assert {record["network"] for record in checks} == {"quadratic", "shallow", "lemma 1"}
    assert sum(record["setting"].startswith("random") for record in checks) == 10
    assert max(abs(record["z"]) for record in checks) < 4
    for record in checks:
        assert record["z"] == pytest.approx((record["closed_form"] - record["monte_carlo"]) / record["standard_error"])


def test_records_survive_the_disk(run: list[records.Record], tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, run)
    assert records.read(path) == json.loads(json.dumps(run))


def test_all_figures_have_their_records(run: list[records.Record]) -> None:
    assert {record["figure"] for record in run if "figure" in record} == {2, 3, 5, 6}
    for surface in (record for record in run if record["kind"] == "surface"):
        assert len(surface["error"]) == len(surface["theta"])
        assert {len(row) for row in surface["error"]} == {len(surface["rho"])}


def test_the_same_seed_gives_the_same_records() -> None:
    first, again = ([next(run) for _ in range(3)] for run in (theory_records(num_samples=200) for _ in range(2)))
    assert first == again


def test_bad_configuration_is_refused() -> None:
    with pytest.raises(QuietnnError, match="num_samples is 10; it must be a whole number of at least 100"):
        next(theory_records(num_samples=10))
    with pytest.raises(QuietnnError, match="seed is -1"):
        next(theory_records(seed=-1))
