"""From runs to everything the page says, as one JSON value."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quietnn.methods import CLEAN
from quietnn.records import Record, other_versions
from quietnn.records.schema import experiment_of
from quietnn.reports.analysis import Analysis, analyse_runs
from quietnn.reports.channels import over_channels
from quietnn.reports.page.inference import task_payload
from quietnn.reports.page.progress import missing_sentence
from quietnn.reports.page.results import results_payload
from quietnn.reports.page.theory import EXPERIMENT as THEORY
from quietnn.reports.page.theory import theory_payload
from quietnn.reports.page.training import EXPERIMENT as TRAINING
from quietnn.reports.page.training import SELECTION, training_payload
from quietnn.reports.runs import Run, inference_records, with_accuracy, with_distinct_names
from quietnn.reports.titles import counted, listed, span_db, task_title

FORMAT = 1
_MOST_DAMAGES = 5
_DRAWN = ("noisy_inference", TRAINING, SELECTION, THEORY)


def page_payload(
    runs: Sequence[Run],
    analysis: Analysis,
    *,
    level: float | None = None,
    num_resamples: int = 10_000,
    most_trials: int = 200_000,
    most_rows: int = 200_000,
    unfinished: bool = False,
) -> dict[str, Any]:
    """Everything the page says about runs.

    Args:
        runs: as `read_run` returns them, whatever experiments left them.
        analysis: of their noisy inference, as `analyse_inference` makes it.
        level: the accuracy at which gains of noisy training are read.
        num_resamples: bootstrap resamples for their intervals.
        most_trials: points of searched surfaces to keep for each task.
        most_rows: records to keep for each kind of experiment.
        unfinished: whether the runs go on, so that what is missing is no news.
    """
    runs = with_distinct_names(runs)
    records = [record for run in runs for record in run.records]
    return {
        "format": FORMAT,
        "title": page_title(runs),
        "lead": page_lead(records),
        "notices": _notices(runs, records, unfinished=unfinished),
        "tasks": [task_payload(task, most_trials=most_trials) for task in analysis.tasks],
        "training": training_payload(records, level=level, num_resamples=num_resamples),
        "theory": theory_payload(records),
        "results": results_payload(records, most_rows=most_rows),
        "runs": [_run(run) for run in runs],
    }


def analyse_inference(runs: Sequence[Run], *, level: float | None = None, num_resamples: int = 10_000) -> Analysis:
    """The noisy inference among the records of runs, measured; without any, an analysis of no tasks.

    Raises:
        InvalidConfig: for a record that no figure can hold, with its file and number.
    """
    kept = [
        replace(run, records=found)
        for run in with_distinct_names(runs)
        if (found := with_accuracy(inference_records(run.records)))
    ]
    return analyse_runs(kept, level=level, num_resamples=num_resamples)


def page_title(runs: Sequence[Run]) -> str:
    """What the runs are, for a reader who sees only this.

    >>> from pathlib import Path
    >>> page_title([Run("digits", Path("."), {}, ({"task": "digits", "method": "ml"},))])
    'Handwritten digits under weight noise'
    """
    records = [record for run in runs for record in run.records]
    kinds = {experiment_of(record) or "evaluation" for record in records}
    tasks = [task_title(str(record["task"])) for record in records if record.get("task")]
    if not records:
        return f"{listed(run.name for run in runs)}: no records yet" if runs else "No runs"
    if kinds == {THEORY}:
        return "Denoising theory: closed forms and simulation"
    what = listed(tasks) if tasks else listed(run.name for run in runs)
    if kinds <= {TRAINING, SELECTION}:
        return f"{what}, trained over a noisy channel"
    if kinds <= {*_DRAWN}:
        over = over_channels(what, inference_records(records))
        return over if over != what else f"{what} under weight noise"
    return f"{what}: {listed(sorted(kinds))}"


def page_lead(records: Sequence[Record]) -> str:
    """How much was measured, in a sentence or two."""
    parts = []
    noisy = [record for record in inference_records(records) if record.get("method") != CLEAN]
    if noisy:
        methods = counted(len({record["method"] for record in noisy}), "way")
        draws = counted(len({(record.get("seed"), record["draw"]) for record in noisy}), "noise draw")
        wnrs = [float(record["wnr_db"]) for record in noisy]
        parts.append(
            f"{methods.capitalize()} to repair the weights, measured {span_db(wnrs)} of weight-to-noise ratio "
            f"with {draws}."
        )
    training = [record for record in records if record.get("experiment") == TRAINING]
    if training:
        schemes = counted(len({record.get("method") for record in training} - {CLEAN}), "scheme")
        rounds = counted(max(int(record.get("num_rounds") or 0) for record in training), "round")
        seeds = counted(len({record.get("seed") for record in training}), "seed")
        parts.append(f"Federated training over the air: {schemes}, {rounds}, {seeds}.")
    if any(record.get("experiment") == THEORY for record in records):
        parts.append("The paper's theory figures, each closed form beside a simulation.")
    return " ".join(parts)


def _notices(runs: Sequence[Run], records: Sequence[Record], *, unfinished: bool) -> list[str]:
    """What is missing, and what the page has no chart for."""
    said = [f"{run.name} holds no records yet." for run in runs if not run.records]
    said += [f"{damage}; it is left out." for run in runs for damage in run.damaged[:_MOST_DAMAGES]]
    said += [f"{run.name}: {sentence}" for run in runs if (sentence := other_versions(run.records))]
    if not unfinished:
        said += [sentence for run in runs if run.records and (sentence := missing_sentence(run))]
    others = sorted({str(record["experiment"]) for record in records if record.get("experiment")} - {*_DRAWN})
    if others:
        said.append(f"Records of {listed(others)} have no chart here; they are in the table of results.")
    if len(with_accuracy(records)) < len(records):
        said.append("Records with a score of their own and no accuracy have no chart here; they are in the table.")
    return said


def _run(run: Run) -> dict[str, Any]:
    facts = {
        "records": f"{len(run.records):,}",
        "task": _all_of(run, "task"),
        "channel": _all_of(run, "channel"),
        "seeds": _all_of(run, "seed"),
        "tuning examples": _all_of(run, "num_tuning_examples"),
        "test examples": _all_of(run, "num_test_examples"),
        "computing time": _duration(sum(float(record.get("seconds") or 0) for record in run.records)),
        "quietnn": _all_of(run, "version"),
        "configuration": _all_of(run, "config"),
    }
    config = [[key, json.dumps(value)] for key, value in run.config.items()]
    return {"name": run.name, "facts": [[key, value] for key, value in facts.items() if value], "config": config}


def _all_of(run: Run, field: str) -> str:
    found = {record[field] for record in run.records if isinstance(record.get(field), str | int | float)}
    ordered = sorted(found, key=lambda value: (isinstance(value, str), value))
    if len(ordered) > 12 and all(isinstance(value, int) for value in ordered):
        return f"{len(ordered):,} from {ordered[0]} to {ordered[-1]}"
    return ", ".join(str(value) for value in ordered)


def _duration(seconds: float) -> str:
    """Seconds in the two units a reader wants.

    >>> _duration(75.0), _duration(7260.0), _duration(0.0)
    ('1 min 15 s', '2 h 1 min', '')
    """
    if seconds <= 0:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {left} s"
