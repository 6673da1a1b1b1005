"""From runs to everything the page says, as one JSON value."""

import json
from collections.abc import Sequence
from typing import Any

from quietnn.methods import CLEAN, REFERENCE
from quietnn.records import Record, other_versions
from quietnn.records.schema import INFERENCE, SELECTION, THEORY, TRAINING, experiment_of
from quietnn.reports.analysis import Analysis
from quietnn.reports.page.glossary import glossary
from quietnn.reports.page.tables import results_payload, table_payload
from quietnn.reports.page.tasks import task_payload, training_payload
from quietnn.reports.quantities import with_accuracy
from quietnn.reports.runs import Run, inference_records, missing_sentence
from quietnn.reports.tables import Table
from quietnn.reports.titles import counted, duration, listed, over_channels, span_db, task_title

FORMAT = 1
_MOST_DAMAGES = 5
_DRAWN = (INFERENCE, TRAINING, SELECTION, THEORY)
_FORMS = {
    "corrected": "quadratic network, corrected constants",
    "printed": "tanh network, as printed (eq. 31)",
    "printed_without_stray": "tanh network, as printed, without the terms lacking c",
    "exact": "tanh network, exact (quadrature)",
    "simulated": "tanh network, simulated",
}


def page_payload(
    analysis: Analysis, *, most_trials: int = 200_000, most_rows: int = 200_000, unfinished: bool = False
) -> dict[str, Any]:
    """Everything the page says about runs.

    Kept are so many points of searched surfaces for each task and so many rows for each experiment. Of `unfinished`
    runs it is no news what is missing.
    """
    runs = analysis.runs
    records = [record for run in runs for record in run.records]
    tasks = [task_payload(task, most_trials=most_trials) for task in analysis.tasks]
    training = [training_payload(task) for task in analysis.trained]
    return {
        "format": FORMAT,
        "title": page_title(runs),
        "lead": page_lead(records),
        "notices": _notices(runs, records, unfinished=unfinished),
        "terms": _terms([*tasks, *training]),
        "tasks": tasks,
        "training": training,
        "theory": theory_payload(records),
        "results": results_payload(records, most_rows=most_rows),
        "runs": [_run(run) for run in runs],
    }


def _terms(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The words that the figures of these tasks use, explained."""
    curves = [curve for task in tasks for curve in task["curves"]]
    uses = {task["quantity"]["name"] for task in tasks}
    uses |= {"surfaces"} if any(task["surfaces"] for task in tasks) else set()
    uses |= {"oracle"} if any(curve["oracle"] for curve in curves) else set()
    return glossary([curve["method"] for curve in curves], uses=uses) if tasks else []


def page_title(runs: Sequence[Run]) -> str:
    """What the runs are, for a reader who sees only this."""
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
        methods = counted(len({record["method"] for record in noisy} - {REFERENCE}), "way")
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


def theory_payload(records: Sequence[Record]) -> dict[str, Any] | None:
    """The figures that the records allow; None without any record of the theory."""
    found = [record for record in records if record.get("experiment") == THEORY]
    if not found:
        return None

    def all_of(kind: str) -> list[Record]:
        return [record for record in found if record.get("kind") == kind]

    return {
        "relation": next(iter(all_of("relation")), None),
        "estimators": all_of("estimator"),
        "surfaces": [_surface(record, all_of("point")) for record in all_of("surface")],
        "againstC": next(iter(all_of("against_c")), None),
        "checks": table_payload(_checks(all_of("check"))),
    }


def _surface(record: Record, points: Sequence[Record]) -> dict[str, Any]:
    label = f"figure {record['figure']}: {_FORMS.get(record['form'], record['form'])}"
    here = [point for point in points if point["figure"] == record["figure"]]
    return {**record, "label": label, "points": here}


def _checks(records: Sequence[Record]) -> Table:
    rows = [
        (
            f"{record['network']}: {record['setting']}",
            f"{record['closed_form']:.4g}",
            f"{record['monte_carlo']:.4g} ± {record['standard_error']:.1g}",
            f"{record['z']:+.1f}",
            f"{record['printed']:.4g}",
            f"{record['z_printed']:+.1f}",
        )
        for record in records
    ]
    header = ("setting", "closed form", "Monte Carlo", "z", "as printed", "z of the printed")
    return Table("Closed form against Monte Carlo; z is in standard errors", header, tuple(rows))


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
    found = inference_records(records)
    judged = {record.get("task") for record in with_accuracy(found)}
    if len([record for record in found if record.get("task") in judged]) > len(with_accuracy(found)):
        said.append("Records without accuracy, of a task that has it elsewhere, have no chart here: see the table.")
    return said


def _run(run: Run) -> dict[str, Any]:
    seconds = sum(float(record.get("seconds") or 0) for record in run.records)
    facts = {
        "records": f"{len(run.records):,}",
        "task": _all_of(run, "task"),
        "channel": _all_of(run, "channel"),
        "seeds": _all_of(run, "seed"),
        "tuning examples": _all_of(run, "num_tuning_examples"),
        "test examples": _all_of(run, "num_test_examples"),
        "computing time": duration(seconds) if seconds else "",
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
