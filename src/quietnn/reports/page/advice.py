"""What a reader should take home, in words: the number on top, and the best method for what one has."""

import math
from collections.abc import Sequence
from typing import Any

from quietnn.methods import CLEAN, METHODS, NEEDS, REFERENCE, is_oracle, style_of
from quietnn.reports.analysis import TaskAnalysis
from quietnn.reports.curves import Curve
from quietnn.reports.gains import CONFIDENCE, Gain, covers_at_most, crossing
from quietnn.reports.page.standing import Change, Standing, standings, told_apart
from quietnn.reports.quantities import PERPLEXITY, Quantity, few_digits, percent
from quietnn.reports.runs import grouped
from quietnn.reports.titles import counted, listed

_HAVE = {
    "nothing": "No data",
    "inputs": "Inputs only",
    "shares": "Inputs, known class shares",
    "labels": "Inputs and labels",
    "teacher": "Inputs and the clean network",
}
_TEXT = "Plain text"
"""What every method of a language model needs that needs anything: text is its own label."""

_ASKS = {
    "nothing": "no data",
    "inputs": "no labels",
    "shares": "no labels",
    "labels": "with labels",
    "teacher": "with the clean network",
}
_MOST_TIED = 4


def headline(task: TaskAnalysis) -> dict[str, Any] | None:
    """The number on top and the words under it; None only where nothing was measured under noise."""
    found = standings(task)
    if found and found[0].helps:
        return _gained(task, found[0])
    if found:
        words = f"No method here beats ML at {_level(task)}: {found[0].curve.label} {_lost(found[0])}."
        return {"value": "No gain", "text": words, "place": None}
    return _alone(task)


def advice(task: TaskAnalysis, *, by_need: bool = True) -> list[dict[str, str]]:
    """A line for each kind of data that a measured method needs: what to use, what it costs, what it brings.

    A method that needs less competes too. Without `by_need` there is one line for all.
    """
    found = standings(task)
    if not by_need:
        return [_line(task, found, "Best scheme", costs={})] if found else []
    needs = [_need(task, one) for one in found]
    costs = _costs(task)
    lines: list[dict[str, str]] = []
    for need in dict.fromkeys(sorted(needs)):
        rivals = [one for one, its in zip(found, needs, strict=True) if its <= need]
        have = _TEXT if need and task.quantity is PERPLEXITY else _HAVE[NEEDS[need]]
        if rivals[0].helps and _need(task, rivals[0]) < need:
            lines.append(_nothing_more(have, rivals[0]))
        else:
            lines.append(_line(task, rivals, have, costs))
    return lines


def _need(task: TaskAnalysis, one: Standing) -> int:
    """How much a method needs, by its place in `NEEDS`; for a language model either nothing or text."""
    need = NEEDS.index(style_of(one.curve.method).needs)
    return len(NEEDS) - 1 if need and task.quantity is PERPLEXITY else need


def _gained(task: TaskAnalysis, best: Standing) -> dict[str, Any]:
    """The gain; or, where the range measured is too short to read one, what becomes of the accuracy."""
    label, quantity, gain, change = best.curve.label, task.quantity, best.gain, best.change
    doubt = _doubt(best)
    if gain.gain_db is not None:
        words = f"{label} over ML at {_level(task)}"
        words += f"; {interval_name(gain)} {_interval(gain)}" if gain.low is not None else ""
        words += f"; {_from_to(change, quantity)}" if change and change.after > change.before else ""
        return {"value": f"{gain.gain_db:+.1f} dB", "text": f"{words}. {doubt}".strip(), "place": best.place}
    if change is None:
        return {"value": f"> {best.above:.1f} dB", "text": f"{label} over ML at {_level(task)}.", "place": best.place}
    words = f"{_measure(quantity)} at {change.wnr_db:g} dB with ML and with {label}"
    words += f"; the gain at {_level(task)} is more than {best.above:.1f} dB" if best.above else ""
    return {"value": _arrow(change, quantity), "text": f"{words}. {doubt}".strip(), "place": best.place}


def _alone(task: TaskAnalysis) -> dict[str, Any] | None:
    """Without a pair to compare there is still a result: the best one at the lowest WNR measured."""
    known = [
        (float(wnr), float(merit), place)
        for place, curve in enumerate(task.curves)
        for wnr, merit in zip(curve.wnr_db, curve.mean, strict=True)
        if math.isfinite(merit) and not is_oracle(curve.method)
    ]
    if not known:
        return None
    lowest = min(wnr for wnr, _, _ in known)
    wnr, merit, place = max(one for one in known if one[0] == lowest)
    lacks = "No repair was measured" if task.curves[place].method == REFERENCE else "No ML curve was measured"
    words = f"{_measure(task.quantity)} at {wnr:g} dB with {task.curves[place].label}. {lacks} to compare it with."
    return {"value": _number(merit, task.quantity), "text": words, "place": place}


def _line(task: TaskAnalysis, rivals: Sequence[Standing], have: str, costs: dict[str, float]) -> dict[str, str]:
    best = rivals[0]
    if not best.helps:
        lost = _lost(best)
        return {"have": have, "use": "ML", "text": f"keep the weights as received: {best.curve.label} {lost}."}
    parts = [_price(best.curve, costs), _brings(task, best)]
    text = ", ".join(part for part in parts if part) + "."
    said = [text, _doubt(best), _tied(task, best, rivals[1:], costs)]
    return {"have": have, "use": best.curve.label, "text": " ".join(part for part in said if part)}


def _nothing_more(have: str, best: Standing) -> dict[str, str]:
    return {"have": have, "use": best.curve.label, "text": "as above; no method that needs more was better here."}


def _brings(task: TaskAnalysis, one: Standing) -> str:
    """The gain with its interval, its bound, or the change at one WNR."""
    if one.gain.gain_db is not None:
        interval = f" ({interval_name(one.gain)} {_interval(one.gain)})" if one.gain.low is not None else ""
        return f"{one.gain.gain_db:+.1f} dB{interval}"
    change = _from_to(one.change, task.quantity) if one.change else ""
    return f"more than {one.above:+.1f} dB ({change})" if one.above is not None and change else change


def _doubt(one: Standing) -> str:
    if one.low is None:
        return "One noise draw, so there is no interval."
    return "" if one.low > 0 else "The interval includes zero: this may be luck."


def _tied(task: TaskAnalysis, best: Standing, others: Sequence[Standing], costs: dict[str, float]) -> str:
    """Those that the draws cannot tell from the best."""
    tied = [one.curve for one in others if one.helps and told_apart(best.curve, one.curve, task.level) is False]
    if not tied:
        return ""
    names = [f"{curve.label} ({price})" if (price := _price(curve, costs)) else curve.label for curve in tied]
    more = [f"{len(names) - _MOST_TIED} more"] if len(names) > _MOST_TIED else []
    rivals, draws = listed([*names[:_MOST_TIED], *more]), min(curve.num_draws for curve in (best.curve, *tied))
    if covers_at_most(draws):
        return f"{counted(draws, 'noise draw')} are too few to tell it apart from {rivals}."
    return f"The draws do not tell it apart from {rivals}."


def _price(curve: Curve, costs: dict[str, float]) -> str:
    """What a method takes: `one pass, no labels`; only the passes where it is not known or moot what it needs."""
    if curve.method not in costs:
        return ""
    passes = round(costs[curve.method])
    taken = {0: "no pass", 1: "one pass"}.get(passes, f"{passes:,} passes")
    if curve.method not in METHODS or curve.quantity is PERPLEXITY:
        return taken
    return f"{taken}, {_ASKS[style_of(curve.method).needs]}"


def _costs(task: TaskAnalysis) -> dict[str, float]:
    """Mean passes by method, as recorded; those of the table of methods where no record says."""
    found = {}
    for method, records in grouped(task.records, lambda record: str(record["method"])).items():
        told = [float(record["num_passes"]) for record in records if record.get("num_passes") is not None]
        passes = [number for number in told if math.isfinite(number)]
        if method != CLEAN:
            found[method] = sum(passes) / len(passes) if passes else style_of(method).cost
    return found


def _lost(one: Standing) -> str:
    if one.gain.gain_db is not None:
        return f"loses {-one.gain.gain_db:.1f} dB" if one.gain.gain_db < 0 else "gains nothing"
    at = crossing(one.curve, one.gain.level)
    if at.wnr_db is None and not at.holds:
        return at.reason
    return "was not measured beside it" if one.change is None else f"does {_from_to(one.change, one.curve.quantity)}"


def _level(task: TaskAnalysis) -> str:
    return task.quantity.phrase.format(task.quantity.text(task.level))


def interval_name(gain: Gain) -> str:
    """`95 % interval`, or what an interval over few draws can cover at most."""
    at_most = covers_at_most(gain.num_draws)
    return f"interval of at most {at_most}," if at_most else f"{percent(CONFIDENCE)} interval"


def _interval(gain: Gain) -> str:
    """`3.8 to 7.3 dB`, `3.3 dB or more`, `9.2 dB at most`."""
    low, high = (
        None if end is None or math.isinf(end) else f"{round(end, 1) + 0.0:.1f}" for end in (gain.low, gain.high)
    )
    if low is None:
        return "open" if high is None else f"{high} dB at most"
    return f"{low} dB or more" if high is None else f"{low} to {high} dB"


def _from_to(change: Change, quantity: Quantity) -> str:
    """`22.7 → 92.6 % at 0 dB`, a perplexity by its name."""
    name = "" if quantity.factor == 100 else f"{quantity.name} "
    return f"{name}{_arrow(change, quantity)} at {change.wnr_db:g} dB"


def _arrow(change: Change, quantity: Quantity) -> str:
    unit = " %" if quantity.factor == 100 else ""
    before, after = (_number(merit, quantity).removesuffix(" %") for merit in (change.before, change.after))
    return f"{before} → {after}{unit}"


def _number(merit: float, quantity: Quantity) -> str:
    value = float(quantity.drawn(merit))
    return f"{value:.1f} %" if quantity.factor == 100 else few_digits(value)


def _measure(quantity: Quantity) -> str:
    """What the number on top is a number of, and which way is better."""
    return f"{quantity.name} (lower is better)" if quantity.better == "below" else quantity.name
