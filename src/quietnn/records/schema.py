"""What a record must hold: the type of every field that a report or a resumed run depends on.

Fields that are not named here may hold anything that JSON can say, within bounds, so that records may grow.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quietnn.records.right import unpacked

INFERENCE, TRAINING, SELECTION, THEORY = "noisy_inference", "noisy_training", "noisy_training_selection", "theory"
"""The experiments whose records have a schema; `SELECTION` only chose temperatures for `TRAINING`."""

CLEAN = "clean"
"""The method of a network without noise."""

SELECTION_DRAW = -1
"""The draw under which a federation records the candidates for fixed temperatures."""

_LARGEST_INT = 2**63
_SAME = 1e-9
_DEEPEST = 4
_MOST_DECIBELS = 1_000.0


def experiment_of(record: Mapping[str, Any]) -> str:
    """What a record is a result of; without a name, one of a method or a draw is noisy inference."""
    named = record.get("experiment")
    if named is not None:
        return str(named)
    return INFERENCE if "method" in record or {"wnr_db", "draw"} <= record.keys() else ""


def problem(record: Mapping[str, Any]) -> str:
    """What is wrong with a record, by the name of its field; empty if nothing is.

    >>> problem({"method": "ml", "wnr_db": 3.0, "draw": 0, "accuracy": 1.5})
    'accuracy is 1.5; it must be a number from 0 to 1'
    """
    import quietnn

    found = _field_problem(record) or _at_odds(record)
    version = record.get("version")
    if not found or version is None or version == quietnn.__version__:
        return found
    return f"{found}; quietnn {str(version)[:20]!a} wrote it and this is {quietnn.__version__}"


def _field_problem(record: Mapping[str, Any]) -> str:
    if not isinstance(record.get("experiment", ""), str | None):
        return f"experiment is {repr(record['experiment'])[:60]}; it must be text"
    experiment = experiment_of(record)
    return _misfit(
        record, _THEORY.get(str(record.get("kind")), {}) if experiment == THEORY else _FIELDS.get(experiment, {})
    )


def config_problem(config: Mapping[str, Any]) -> str:
    """What is wrong with a stored configuration, where the reports read it; empty if nothing is."""
    return _misfit(config, _CONFIG)


def fields() -> dict[str, dict[str, str]]:
    """What every field must hold, in words, by experiment; a kind of theory record is `theory/KIND`.

    >>> fields()["noisy_inference"]["accuracy"], fields()["noisy_inference"]["seconds"]
    ('a number from 0 to 1', 'a finite number; may be left out')
    """
    kinds = {**_FIELDS, **{f"{THEORY}/{kind}": table for kind, table in _THEORY.items()}}
    return {
        name: {field: kind.words + ("; may be left out" if kind.optional else "") for field, kind in table.items()}
        for name, table in kinds.items()
    }


def _misfit(record: Mapping[str, Any], kinds: "Mapping[str, _Kind]") -> str:
    """The first field that holds what none may, or not what it must."""
    for name, value in record.items():
        if flaw := _flaw(name, 0) or _flaw(value, 0):
            return f"{name!a} holds {flaw}"
    for name, kind in kinds.items():
        if kind.optional and record.get(name) is None:
            continue
        if name == "accuracy" and name in record and record[name] is None and real(record.get("score")):
            continue  # a task that is judged by a score of its own
        if name == "draw" and name not in record and record.get("method") == CLEAN:
            continue
        if not kind.fits(record.get(name)):
            told = f"is {repr(record[name])[:60]}" if name in record else "is missing"
            return f"{name} {told}; it must be {kind.words}"
    return ""


@dataclass(frozen=True)
class _Kind:
    """What a field may hold, and how to say so."""

    words: str
    fits: Callable[[Any], bool]
    optional: bool = False


def _number(low: float = -1e300, high: float = 1e300) -> Callable[[Any], bool]:
    return lambda value: real(value) and low <= value <= high


def real(value: Any) -> bool:
    """Whether a value is a number, infinite ones and NaN included."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(low: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _decibels(value: Any) -> bool:
    return real(value) and (abs(value) <= _MOST_DECIBELS or abs(value) == math.inf)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _maybe(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _maybe_infinite(value: Any) -> bool:
    """A level of a configuration; infinity, a noiseless channel, by its name or as JSON has it."""
    return value in ("inf", math.inf) or _number()(value)


def _trial(value: Any) -> bool:
    """A point of a search: `lambda'`, `beta`, the accuracy there (None if infeasible), and more."""
    good = isinstance(value, list) and len(value) >= 3 and all(map(_maybe(real), value))
    return good and all(map(_number(-1e6, 1e6), value[:2])) and _maybe(_number(0, 1))(value[2])


def _pairs(value: Any) -> bool:
    pair = _list_of(_maybe(real))
    return isinstance(value, dict) and all(one is None or (pair(one) and len(one) == 2) for one in value.values())


def _numbers_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_maybe(real), value.values()))


_NAME = _Kind("text", _text)
_NOTE = _Kind("text", _text, optional=True)
_FRACTION = _Kind("a number from 0 to 1", _number(0, 1))
_WNR = _Kind(f"a number of decibels from -{_MOST_DECIBELS:g} to {_MOST_DECIBELS:g}, or infinite", _decibels)
_COUNT = _Kind("a whole number, 0 or more", _whole(0), optional=True)
_MEASURED = _Kind("a number", real, optional=True)
_FINITE = _Kind("a finite number", _number())
_ROW = _Kind("a list of finite numbers", _list_of(_number()))
_MATRIX = _Kind("a list of lists of finite numbers", _list_of(_list_of(_number())))

_COMMON = {
    **{"method": _NAME, "wnr_db": _WNR, "draw": _Kind("a whole number", _whole(-1))},
    **dict.fromkeys(("run", "task", "config", "version", "status", "fixed", "channel", "chosen"), _NOTE),
    **dict.fromkeys(("num_tuning_examples", "num_test_examples", "num_rounds", "diverged_round"), _COUNT),
    **dict.fromkeys(("loss", "tuning_accuracy", "num_passes", "level", "rate"), _MEASURED),
    "seed": _Kind("a whole number", _whole(-_LARGEST_INT), optional=True),
    **dict.fromkeys(("seconds", "noise_variance", "assumed_noise_variance"), _Kind("a finite number", _number(), True)),
    **dict.fromkeys(("lambda_prime", "beta"), _Kind("a number within a million", _number(-1e6, 1e6), True)),
}
_INFERENCE = _COMMON | {
    "accuracy": _FRACTION,
    "trials": _Kind("a list of [lambda', beta, accuracy]", _list_of(_trial), optional=True),
    "group_temperatures": _Kind("a pair of numbers for each group", _pairs, optional=True),
    "group_wnr_db": _Kind("a number for each group", _numbers_by_name, optional=True),
    "right": _Kind("text, the answers that are right as hexadecimal digits", _text, optional=True),
}
_TRAINING = _COMMON | {
    "accuracy": _Kind("a number from 0 to 1, or null", _number(0, 1), optional=True),
    "tested_rounds": _Kind("a list of whole numbers", _list_of(_whole(0)), optional=True),
    "round_accuracy": _Kind("a list of numbers from 0 to 1", _list_of(_number(0, 1)), optional=True),
    "deployed_wnr_db": _Kind("a list of decibels", _list_of(_decibels), optional=True),
    "deployed_ml": _Kind("a list of numbers from 0 to 1", _list_of(_number(0, 1)), optional=True),
}
_FIELDS = {INFERENCE: _INFERENCE, TRAINING: _TRAINING, SELECTION: _TRAINING}
_PLACE = {"figure": _Kind("the number of a figure", _whole(1))}
_CURVES = ("exact", "printed", "leading", "simulated", "standard_error")
_THEORY = {
    "relation": _PLACE
    | dict.fromkeys(("pole", "weight_variance", "noise_variance"), _FINITE)
    | dict.fromkeys(("lambda_prime", "theta"), _ROW),
    "estimator": _PLACE | {"name": _NAME, "region": _NAME} | dict.fromkeys(("theta", "lambda_prime"), _FINITE),
    "surface": _PLACE | {"form": _NAME, "theta": _ROW, "rho": _ROW, "error": _MATRIX},
    "point": _PLACE | {"name": _NAME, "point_kind": _NAME} | dict.fromkeys(("theta", "rho", "error"), _FINITE),
    "against_c": _PLACE
    | dict.fromkeys(("input_limit", "simulated_input_limit"), _ROW)
    | {f"{which}_{curve}": _ROW for which in ("ml", "pb") for curve in _CURVES},
    "check": {"network": _NAME, "setting": _NAME}
    | dict.fromkeys(
        ("closed_form", "monte_carlo", "standard_error", "z", "printed", "z_printed"), _Kind("a number", real)
    ),
}
_LEVELS = _Kind("a list of numbers", _list_of(_maybe_infinite), optional=True)
_TEXTS = _Kind("a list of text", _list_of(_text), optional=True)
_CONFIG = {
    **dict.fromkeys(("name", "task"), _NOTE),
    **{"wnr_db": _LEVELS, "levels": _LEVELS, "methods": _TEXTS, "fixed": _TEXTS, "num_draws": _COUNT},
}
_TWINS = (("tested_rounds", "round_accuracy"), ("deployed_wnr_db", "deployed_ml"))


def _at_odds(record: Mapping[str, Any]) -> str:
    """Fields that fit one by one and not together."""
    if experiment_of(record) == INFERENCE:
        return _answers_at_odds(record)
    if experiment_of(record) not in (TRAINING, SELECTION):
        return ""
    for one, other in _TWINS:
        lengths = [len(record.get(name) or ()) for name in (one, other)]
        if lengths[0] != lengths[1]:
            return f"{one} has {lengths[0]} entries and {other} {lengths[1]}; they go together"
    if record.get("fixed") is not None and (record.get("lambda_prime") is None or record.get("beta") is None):
        return "fixed is given without lambda_prime and beta"
    if record.get("accuracy") is None and record.get("status") != "diverged":
        return "accuracy is missing, and status is not 'diverged'"
    return ""


def _answers_at_odds(record: Mapping[str, Any]) -> str:
    """Answers that are not those of the accuracy."""
    text, num_examples = record.get("right"), record.get("num_test_examples")
    if text is None:
        return ""
    if not num_examples:
        return "right is given without num_test_examples"
    try:
        share = sum(unpacked(text, num_examples)) / num_examples
    except ValueError as error:
        return f"right is not what it must be: {error}"
    is_same = record["accuracy"] is not None and abs(share - record["accuracy"]) < _SAME
    return "" if is_same else f"right has an accuracy of {share:g}, and accuracy is {record['accuracy']}"


def _flaw(value: Any, depth: int) -> str:
    """What no field may hold: text that is none, numbers that no computer counts to, nests without end."""
    if isinstance(value, str):
        return "" if value.isascii() or value.encode(errors="replace").decode() == value else "text that is not Unicode"
    if isinstance(value, int):
        return "" if abs(value) <= _LARGEST_INT else "a whole number of more than 64 bits"
    if isinstance(value, list | tuple | dict):
        if depth == _DEEPEST:
            return f"more than {_DEEPEST} lists inside each other"
        inside: Sequence[Any] = [*value, *value.values()] if isinstance(value, dict) else value
        return next((flaw for item in inside if (flaw := _flaw(item, depth + 1))), "")
    return ""
