"""Run folders looked at again and again."""

from collections.abc import Callable
from pathlib import Path

from quietnn import records as store
from quietnn.records import Record
from quietnn.reports.page.watch import Watch

Make = Callable[..., list[Record]]
Write = Callable[..., Path]


class Clock:
    """Time that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_look_sees_new_records_and_nothing_else(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    found = make_records(num_draws=1, methods=("ml", "mmse"), with_trials=False)
    folder = write_run(tmp_path / "run", found[:-1])
    watch = Watch([folder])
    assert watch.look()
    assert not watch.look()
    assert watch.payload["results"][0]["numRows"] == len(found) - 1
    store.append(folder / "records.jsonl", found[-1:])
    assert watch.look()
    assert watch.payload["results"][0]["numRows"] == len(found)


def test_a_folder_that_is_not_there_yet_is_waited_for(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    watch = Watch([tmp_path / "later"])
    assert watch.look()
    assert watch.payload["notices"] == ["later holds no records yet."]
    write_run(tmp_path / "later", make_records(num_draws=1, methods=("ml",), with_trials=False))
    assert watch.look()
    assert watch.payload["tasks"][0]["name"] == "digits"


def test_time_left_follows_the_pace_of_work(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    found = make_records(num_draws=2, wnrs=(-6.0,), methods=("ml", "mmse_pb_layerwise"))
    clean, ml0, slow0, ml1, slow1 = found
    config = {"wnr_db": [-6.0], "num_draws": 2, "methods": ["ml", "mmse_pb_layerwise"]}
    folder = write_run(tmp_path / "run", [clean, ml0], **config)
    clock = Clock()
    watch = Watch([folder], clock=clock)
    watch.look()
    progress = watch.progress()
    assert (progress["done"], progress["total"]) == (2, 5)
    assert progress["left"] == "time left is known after the next record"
    clock.now += 84.0
    store.append(folder / "records.jsonl", [slow0])
    watch.look()
    # The slow record took 84 s for its 4.2; what is left weighs 4.2 + 0.02.
    assert watch.progress()["left"] == "about 84 s left"
    clock.now += 300.0
    assert watch.progress()["note"] == "last record 5 min ago"
    store.append(folder / "records.jsonl", [ml1, slow1])
    watch.look()
    assert (watch.progress()["left"], watch.progress()["note"]) == ("", "")


def test_without_a_plan_only_the_count_is_known(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(num_draws=1, methods=("ml",)))
    (folder / "config.json").unlink()
    watch = Watch([folder])
    watch.look()
    assert watch.progress()["total"] is None


def test_a_broken_record_is_named_and_the_next_is_shown(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(num_draws=1, methods=("ml",)))
    watch = Watch([folder])
    watch.look()
    num_before = len(watch.runs[0].records)
    bad = {"method": "ml", "wnr_db": 0.0, "draw": 0, "accuracy": 60}
    store.append(folder / "records.jsonl", [bad, bad | {"accuracy": 0.6, "draw": 7}])
    assert watch.look()
    assert len(watch.runs[0].records) == num_before + 1
    line = num_before + 1
    assert watch.trouble == (
        f"left out {folder / 'records.jsonl'}, line {line} is not a record "
        "(accuracy is 60; it must be a number from 0 to 1)"
    )
