"""Units run in this process or in workers, and end with the same records."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.experiments.engines import MAX_ATTEMPTS, Unit, key_of, run_units
from quietnn.records import Record

UNITS = [Unit(float(level), 0, ("ml", "mmse")) for level in range(5)]


class Counting:
    """Says where a unit was run, and falls over where it is told to."""

    def __init__(self, folder: Path, dies_at: float = -1.0, fails_at: float = -1.0) -> None:
        self.folder, self.dies_at, self.fails_at = folder, dies_at, fails_at
        (folder / f"made-{os.getpid()}").touch()

    def run(self, unit: Unit) -> Iterator[Record]:
        if unit.level == self.dies_at:
            (self.folder / f"died-{len(list(self.folder.iterdir()))}").touch()
            os._exit(9)
        if unit.level == self.fails_at:
            raise InvalidConfig("the unit says why")
        for method in unit.methods:
            yield {"wnr_db": unit.level, "draw": unit.draw, "method": method, "threads": torch.get_num_threads()}


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_every_unit_is_run_once_by_workers_that_are_made_once(engine: str, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    found = list(run_units(engine, partial(Counting, tmp_path), UNITS, num_workers=2, num_threads=1))
    assert sorted(map(key_of, found)) == sorted(key for unit in UNITS for key in unit.keys())  # noqa: SIM118
    assert {record["threads"] for record in found} == {1}
    assert len(list(tmp_path.glob("made-*"))) == (1 if engine == "inline" else 2)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_what_a_unit_says_reaches_the_caller(engine: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="the unit says why"):
        list(run_units(engine, partial(Counting, tmp_path, fails_at=2.0), UNITS, num_workers=1))


def test_a_unit_that_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(QuietnnError, match=f"a worker died {MAX_ATTEMPTS} times at Unit"):
        list(run_units("processes", partial(Counting, tmp_path, dies_at=1.0), UNITS, num_workers=1))
    assert len(list(tmp_path.glob("died-*"))) == MAX_ATTEMPTS


def test_a_record_of_another_channel_is_told_by_its_level() -> None:
    assert key_of({"wnr_db": 17.2, "level": 4.0, "draw": 1, "method": "ml"}) == (4.0, 1, "ml")
