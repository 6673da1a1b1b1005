"""What a curve is a curve of: accuracy, perplexity, or a score of the user's own, one row each."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.records.schema import real

FACTOR = 1.5
"""Gains of language models are read at so many times the perplexity without noise."""

MOST_LOSS = math.log(1e12)
"""A loss above it, infinite ones included, counts as it: such a network is useless, and the curve stays drawable."""


@dataclass(frozen=True)
class Quantity:
    """How a quantity is averaged, written and drawn.

    Curves, levels and gains hold *merits*: more is better, and means over draws are means of merits. The merit of a
    perplexity is minus its loss, so the perplexity shown is `exp` of the mean loss.

    Attributes:
        name: of its files, its table and its part of the page.
        merit: of a record; NaN where there is none.
        number: a merit, or an array of them, as a reader knows it: a fraction, a perplexity, a score.
        text: a merit in a sentence.
        cell: a mean merit and its standard deviation (NaN for one draw) in a table.
        caption: of that table, up to the number of draws.
        clean: the merit without noise, the number of test examples and the level of gains, in words.
        level: where gains are read: from the task, what the user asked for, the merit without noise, and all means.
        axis: what is written beside the axis.
        better: which way better numbers lie.
        phrase: how a level stands behind "at" in a headline.
        factor: from a number to what the axis shows.
        limits: of the axis; None for those of the data.
        log: whether the axis is logarithmic.
    """

    name: str
    merit: Callable[[Record], float]
    number: Callable[[Any], Any]
    text: Callable[[float], str]
    cell: Callable[[float, float], str]
    caption: str
    clean: Callable[[float, int, float], str]
    level: Callable[[str, float | None, float | None, Sequence[float]], float]
    axis: str
    better: str = "above"
    phrase: str = "{}"
    factor: float = 1.0
    limits: tuple[float, float] | None = None
    log: bool = False

    @property
    def worse(self) -> str:
        """Which way worse numbers lie."""
        return "below" if self.better == "above" else "above"

    def drawn(self, merit: Any) -> Any:
        """A merit, or an array of them, on the axis."""
        return self.factor * self.number(merit)


def percent(level: float) -> str:
    """An accuracy as a reader writes it: `60 %`, `62.5 %`."""
    return f"{100 * level:.4g} %"


def few_digits(value: float) -> str:
    """Three digits and no more, without an exponent as long as a reader can do without.

    >>> few_digits(7.8517), few_digits(5405.9), few_digits(3.2e8)
    ('7.85', '5410', '3.20e+08')
    """
    return f"{float(f'{value:.3g}'):.0f}" if 1_000 <= value < 1e6 else f"{value:#.3g}".rstrip(".")


def with_accuracy(records: Iterable[Record]) -> tuple[Record, ...]:
    """Those that were judged by accuracy; a task with a score of its own has none."""
    return tuple(record for record in records if record.get("accuracy") is not None or "score" not in record)


def quantity_of(records: Sequence[Record]) -> Quantity:
    """What the records of a task measure: accuracy if any has one, perplexity if every score is `exp` of the loss.

    Any other score is better in the direction in which the loss falls.
    """
    if with_accuracy(records):
        return ACCURACY
    pairs = [(float(record["score"]), _loss(record)) for record in records]
    if pairs and all(_is_perplexity(*pair) for pair in pairs):
        return PERPLEXITY
    known = np.asarray([pair for pair in pairs if all(map(math.isfinite, pair))]).reshape(-1, 2)
    together = float(np.prod(known - known.mean(axis=0), axis=1).sum()) if len(known) else 0.0
    return FALLING_SCORE if together > 0 else SCORE


def _loss(record: Record) -> float:
    return float(record["loss"]) if real(record.get("loss")) else math.nan


def _is_perplexity(score: float, loss: float) -> bool:
    return score == math.inf or (score > 0 and math.isclose(math.log(score), loss, rel_tol=1e-6, abs_tol=1e-6))


def _clean_accuracy(accuracy: float, examples: int, _: float) -> str:
    error = 100 * (accuracy * (1 - accuracy) / examples) ** 0.5 if examples else 0.0
    margin = f" on {examples:,} test examples" if examples else ""
    margin += f" (standard error {error:.1f} points)" if error else ""
    return f"{100 * accuracy:.2f} %{margin}"


def _accuracy_level(task: str, asked: float | None, _clean: float | None, _means: Sequence[float]) -> float:
    level = (0.75 if task.startswith("sst2") else 0.6) if asked is None else asked
    if not 0 < level < 1:
        raise InvalidConfig(f"level {level} is not an accuracy between 0 and 1; 60 % is 0.6")
    return level


ACCURACY = Quantity(
    name="accuracy",
    merit=lambda record: float(record["accuracy"]),
    number=lambda merit: merit,
    text=percent,
    cell=lambda mean, std: f"{100 * mean:.1f}" + ("" if math.isnan(std) else f" ± {100 * std:.1f}"),
    caption="Test accuracy in per cent against WNR, mean ± standard deviation over",
    clean=_clean_accuracy,
    level=_accuracy_level,
    axis="test accuracy (%)",
    phrase="{} accuracy",
    factor=100,
    limits=(0, 103),
)


def _perplexity(merit: Any) -> Any:
    return np.exp(-np.asarray(merit))[()]


def _perplexity_text(merit: float) -> str:
    return f"perplexity {few_digits(_perplexity(merit))}"


def _perplexity_cell(mean: float, std: float) -> str:
    ends = "" if math.isnan(std) else " ({} to {})".format(*(few_digits(_perplexity(mean + d)) for d in (std, -std)))
    return few_digits(_perplexity(mean)) + ends


def _clean_perplexity(merit: float, tokens: int, level: float) -> str:
    on = f" on {tokens:,} test tokens" if tokens else ""
    return f"{_perplexity_text(merit)}{on}; gains are read at {_perplexity(level - merit):.3g} times that"


def _perplexity_level(_: str, asked: float | None, clean: float | None, means: Sequence[float]) -> float:
    factor = FACTOR if asked is None else asked
    if not 1 < factor < math.inf:
        raise InvalidConfig(
            f"level {factor} is not a factor above 1 on the perplexity without noise; gains of language models are "
            f"read at {FACTOR} times it with --level {FACTOR}"
        )
    return (max(means, default=0.0) if clean is None else clean) - math.log(factor)


PERPLEXITY = Quantity(
    name="perplexity",
    merit=lambda record: -(min(_loss(record), MOST_LOSS)),
    number=_perplexity,
    text=_perplexity_text,
    cell=_perplexity_cell,
    caption="Perplexity against WNR, exp of the mean loss (in brackets ± one standard deviation of the loss) over",
    clean=_clean_perplexity,
    level=_perplexity_level,
    axis="perplexity",
    better="below",
    log=True,
)


def _score(sign: int) -> Quantity:
    """A score of which more (+1) or less (-1) is better."""

    def level(_: str, asked: float | None, clean: float | None, means: Sequence[float]) -> float:
        """What was asked for, else half-way down from the score without noise to the worst mean."""
        known = [*means, *([] if clean is None else [clean])] or [0.0]
        return (min(known) + (max(known) if clean is None else clean)) / 2 if asked is None else sign * asked

    def text(merit: float) -> str:
        return f"score {sign * merit:.4g}"

    return Quantity(
        name="score",
        merit=lambda record: sign * float(record["score"]),
        number=lambda merit: sign * merit,
        text=text,
        cell=lambda mean, std: f"{sign * mean:.4g}" + ("" if math.isnan(std) else f" ± {std:.2g}"),
        caption="Score against WNR, mean ± standard deviation over",
        clean=lambda merit, examples, _: text(merit) + (f" on {examples:,} test examples" if examples else ""),
        level=level,
        axis="score" if sign > 0 else "score (lower is better)",
        better="above" if sign > 0 else "below",
    )


SCORE, FALLING_SCORE = _score(+1), _score(-1)
