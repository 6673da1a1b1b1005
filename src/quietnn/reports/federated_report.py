"""Records of noisy training to curves, gains in decibels, figures and a summary."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quietnn.errors import MissingData
from quietnn.files import write_together
from quietnn.methods import CLEAN, REFERENCE, is_oracle
from quietnn.records import Record, read
from quietnn.records.schema import TRAINING
from quietnn.reports.accuracy_figure import Panel, accuracy_figure
from quietnn.reports.curves import Curve, curves
from quietnn.reports.federated_figures import deployment_figure, rounds_figure
from quietnn.reports.figures import Style, to_png, to_svg
from quietnn.reports.gains import Gain, crossing, gain_db, percent
from quietnn.reports.runs import RECORDS
from quietnn.reports.tables import Table, accuracy_table, gain_table, interval_text, to_csv, to_markdown

EXPERIMENT = TRAINING
CHANCE = 0.1
"""The accuracy that a run counts with in a curve when it diverged: ten classes, guessed."""


@dataclass(frozen=True, eq=False)
class FederatedReport:
    """What the records of one experiment say.

    Attributes:
        records: the finished and the diverged runs, candidates for fixed temperatures aside.
        level: the accuracy at which gains are read.
        clean: mean accuracy without noise, if measured.
        curves: accuracy against WNR, one for each scheme.
        gains: of each curve over ML; None for ML itself.
    """

    records: tuple[Record, ...]
    level: float
    clean: float | None
    curves: tuple[Curve, ...]
    gains: tuple[Gain | None, ...]

    @property
    def reference(self) -> Curve | None:
        """The ML curve."""
        return next((curve for curve in self.curves if curve.method == REFERENCE), None)

    @property
    def best(self) -> int | None:
        """The place of the curve that gains most, oracles aside."""
        places = [
            (gain.gain_db, place)
            for place, (curve, gain) in enumerate(zip(self.curves, self.gains, strict=True))
            if gain is not None and gain.gain_db is not None and not is_oracle(curve.method)
        ]
        return max(places)[1] if places else None

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        found = [] if self.clean is None else [f"Without noise: {100 * self.clean:.1f} %."]
        for curve, gain in zip(self.curves, self.gains, strict=True):
            at = crossing(curve, self.level)
            if at.wnr_db is None:
                found.append(f"{curve.label} {at.reason}.")
            elif gain is None or gain.gain_db is None:
                found.append(f"{curve.label} holds {percent(self.level)} down to {at.wnr_db:.1f} dB.")
            else:
                interval = "" if gain.low is None else f", 95 % interval {interval_text(gain)}"
                note = f"; {gain.note}" if gain.note else ""
                found.append(
                    f"{curve.label} holds {percent(self.level)} down to {at.wnr_db:.1f} dB, a gain over ML of "
                    f"{gain.gain_db:+.1f} dB ({_seeds(gain.num_draws)}{interval}{note})."
                )
        diverged = [record for record in self.records if record.get("status") == "diverged"]
        found += [
            f"{record['method']} at {record['wnr_db']:g} dB, draw {record['draw']}, diverged in round "
            f"{record.get('diverged_round', '?')}; it counts as {percent(CHANCE)}."
            for record in diverged
        ]
        return found


def holds_federations(folder: Path) -> bool:
    """Whether a folder holds records of noisy training."""
    path = folder / RECORDS
    return path.is_file() and any(record.get("experiment") == EXPERIMENT for record in read(path))


def read_federated_report(folder: Path, *, level: float | None = None, num_resamples: int = 10_000) -> FederatedReport:
    """Read a folder that `quietnn federate` wrote.

    Args:
        folder: holds `records.jsonl`.
        level: the accuracy at which gains are read; left out, one that ML reaches only at high WNR: 85 % of the way
            from chance to the accuracy without noise.
        num_resamples: bootstrap resamples for each interval.

    Raises:
        MissingData: if there are no records of noisy training.
        InvalidConfig: if a line is no sound record, with its number and field.
    """
    path = folder / RECORDS
    found = [record for record in read(path) if record.get("experiment") == EXPERIMENT]
    if not found:
        raise MissingData(
            f"no records of {EXPERIMENT} in {folder}; make some with: quietnn federate CONFIG --out {folder}"
        )
    filled = [record if record.get("accuracy") is not None else {**record, "accuracy": CHANCE} for record in found]
    accuracies = [float(record["accuracy"]) for record in filled if record["method"] == CLEAN]
    clean = float(np.mean(accuracies)) if accuracies else None
    level = level or round(CHANCE + 0.85 * ((clean or 0.6) - CHANCE), 2)
    made = curves(filled)
    reference = next((curve for curve in made if curve.method == REFERENCE), None)
    gains = tuple(
        None
        if reference is None or curve is reference
        else gain_db(curve, reference, level, num_resamples=num_resamples)
        for curve in made
    )
    return FederatedReport(tuple(filled), level, clean, made, gains)


def write_federated_report(folder: Path, *, level: float | None = None, style: Style = "screen") -> FederatedReport:
    """Write `summary.md`, tables and figures beside the records, and return what they say."""
    report = read_federated_report(folder, level=level)
    tables = _tables(report)
    figures = {"accuracy": accuracy_figure([_panel(report)], style=style), "rounds": rounds_figure(report.records)}
    if any(record.get("deployed_wnr_db") for record in report.records):
        figures["deployed"] = deployment_figure(report.records)
    summary = ["# Noisy training", "\n".join(f"- {line}" for line in report.sentences), *map(to_markdown, tables)]
    files = {"summary.md": ("\n\n".join(summary) + "\n").encode()}
    for name, table in zip(("accuracy", "gains"), tables, strict=False):
        files[f"{name}.csv"] = to_csv(table).encode()
    for name, figure in figures.items():
        files |= {f"{name}.png": to_png(figure), f"{name}.svg": to_svg(figure).encode()}
    write_together(folder, files)
    return report


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


def _panel(report: FederatedReport) -> Panel:
    title = str(report.records[0].get("task", ""))
    if report.best is None:
        return Panel(title, report.curves, report.level, report.clean)
    return Panel(title, report.curves, report.level, report.clean, report.reference, report.gains[report.best])


def _tables(report: FederatedReport) -> list[Table]:
    tables = [accuracy_table(report.curves), gain_table(report.curves, report.gains, report.level)]
    fixed = sorted({(r["wnr_db"], r["method"], r["lambda_prime"], r["beta"]) for r in report.records if r.get("fixed")})
    if fixed:
        rows = [
            (f"{wnr:g} dB", method, f"{lambda_prime:.4f}", f"{beta:g}") for wnr, method, lambda_prime, beta in fixed
        ]
        tables.append(Table("Temperatures fixed over the run", ("WNR", "scheme", "λ′", "β"), tuple(rows)))
    return [*tables, _cost(report.records)]


def _cost(records: Sequence[Record]) -> Table:
    methods = dict.fromkeys(record["method"] for record in records)
    rows = []
    for method in methods:
        mine = [record for record in records if record["method"] == method]
        seconds = np.mean([float(record.get("seconds") or 0.0) for record in mine])
        passes = np.mean([float(record.get("num_passes") or 0) for record in mine])
        rows.append((method, str(len(mine)), f"{passes:.0f}", f"{seconds:.0f}"))
    header = ("scheme", "runs", "passes over the tuning examples", "seconds")
    return Table("Mean cost of a run, training included, as the clock went", header, tuple(rows))
