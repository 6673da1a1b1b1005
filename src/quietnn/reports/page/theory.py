"""What the page shows of the theory checks: the paper's figures 2, 3, 5 and 6 as data, and the checks as a table."""

from collections.abc import Sequence
from typing import Any

from quietnn.records import Record
from quietnn.reports.page.numbers import table_payload
from quietnn.reports.tables import Table

EXPERIMENT = "theory"

_FORMS = {
    "corrected": "quadratic network, corrected constants",
    "printed": "tanh network, as printed (eq. 31)",
    "printed_without_stray": "tanh network, as printed, without the terms lacking c",
    "exact": "tanh network, exact (quadrature)",
    "simulated": "tanh network, simulated",
}


def theory_payload(records: Sequence[Record]) -> dict[str, Any] | None:
    """The figures that the records allow; None without any record of the theory."""
    found = [record for record in records if record.get("experiment") == EXPERIMENT]
    if not found:
        return None
    return {
        "relation": _first(found, "relation"),
        "estimators": _all(found, "estimator"),
        "surfaces": [_surface(record, found) for record in _all(found, "surface")],
        "againstC": _first(found, "against_c"),
        "checks": table_payload(_checks(_all(found, "check"))),
    }


def _surface(record: Record, found: Sequence[Record]) -> dict[str, Any]:
    points = [point for point in _all(found, "point") if point["figure"] == record["figure"]]
    return {
        "figure": record["figure"],
        "label": f"figure {record['figure']}: {_FORMS.get(record['form'], record['form'])}",
        "theta": record["theta"],
        "rho": record["rho"],
        "error": record["error"],
        "points": [{key: point[key] for key in ("name", "theta", "rho", "error", "point_kind")} for point in points],
    }


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


def _first(found: Sequence[Record], kind: str) -> Record | None:
    return next(iter(_all(found, kind)), None)


def _all(found: Sequence[Record], kind: str) -> list[Record]:
    return [record for record in found if record.get("kind") == kind]
