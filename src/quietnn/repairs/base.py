"""The shape of every repair: what arrived and what is known of the task go in, a `Repaired` comes out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any

from quietnn.errors import InvalidConfig, check_is, unknown_choice
from quietnn.evidence import Evidence
from quietnn.methods import METHODS, NEEDS, Method
from quietnn.observation import Observation
from quietnn.repairs.beside.beside import Beside
from quietnn.repairs.beside.project import projected
from quietnn.repairs.beside.where import WEIGHTS, Where


@dataclass(frozen=True, repr=False)
class Repaired:
    """The result of every repair.

    Attributes:
        model: the repaired network, a copy; a state dict or a tensor where one was given.
        name: of the method that made it, a row of `REPAIRS`.
        passes: its cost in forward passes over the examples. A backward pass counts as two. A pass that stops at a
            layer counts as the share of layers that ran.
        details: what else the method reports, by name. If a method that rewrites weights had to leave them, `kept` is
            the share of its squared change that can stand beside them.

    >>> from torch import nn
    >>> Repaired(nn.Linear(1, 1), "calibrated", 1.0, {"head_weight": 0.0})
    Repaired('calibrated', 1 pass, model=Linear, details: head_weight)
    """

    model: Any
    name: str
    passes: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def beside(self) -> Beside:
        """What stands beside the received weights, if the repair left them as they are.

        Raises:
            InvalidConfig: if the repair was free to rewrite them.
        """
        if "beside" not in self.details:
            raise InvalidConfig(
                f"{self.name} was free to rewrite the weights, so nothing stands beside them; call "
                "repair(model, ..., trainable='digital') or trainable='adapter'"
            )
        found: Beside = self.details["beside"]
        return found

    def __repr__(self) -> str:
        """One line."""
        passes = f"{self.passes:.3g} pass" + ("" if self.passes == 1 else "es")
        more = f", details: {', '.join(self.details)}" if self.details else ""
        return f"Repaired({self.name!r}, {passes}, model={type(self.model).__name__}{more})"

    def __str__(self) -> str:
        """What a method has to tell in words, where it does; else one line."""
        return str(self.details["report"]) if "report" in self.details else repr(self)

    def _repr_html_(self) -> str:
        """For notebooks: the line, and the details that are short."""
        from html import escape  # its table of entities is for notebooks alone

        short = {name: str(value) for name, value in self.details.items()}
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td><pre>{escape(text)}</pre></td></tr>"
            for name, text in short.items()
            if len(text) < _LONGEST
        )
        return f"<p><code>{escape(repr(self))}</code></p><table>{rows}</table>"


_ASKS = {
    "labels": ("inputs with labels, and there are none", "inputs, labels"),
    "teacher": ("the clean network as a teacher, and there is none", "inputs, teacher=clean"),
}
"""What a repair says that lacks what it needs, and how it is called."""

_LONGEST = 2000
"""Characters of a detail that a notebook still shows."""


Run = Callable[..., Repaired]
"""`run(observation, evidence, seed, settings)`: the observation has its gain undone; settings are the row's own."""

Rule = Callable[[Observation[Any, Any]], bool]
"""A question about what arrived."""


def always(observation: object) -> bool:
    """For repairs that every network can have."""
    return True


def never(observation: object) -> bool:
    """For repairs that `auto` leaves alone."""
    return False


@dataclass(frozen=True)
class Repair:
    """One row of `REPAIRS`: a way to repair a network, and the facts to choose it by.

    Attributes:
        method: name, label, reference, needs and cost, for reports.
        run: the function that repairs: `run(observation, evidence, seed, settings)`.
        applies: whether it can change anything about this observation.
        by_auto: whether `auto` may try it on this observation, with labels to judge it.
        behind: a repair that does better wherever it can be made; `auto` tries this one only where that one could not.
        unjudged: whether `auto` may use it without labels, because it did such networks no harm in measurements. If
            several rows say so, the last one in the table is used.
        by_score: whether a score can replace labels.
        settings: a frozen dataclass, if the method has settings.
        judges_itself: whether its details hold `held_out`, a `Verdict` on every example by a network that did not see
            it. `auto` makes such a repair once; it makes others from each half and then from all examples.
        fits_beside: whether `run` takes `trainable`, `rank` and `budget` by keyword and returns a `beside`. The results
            of other repairs are projected onto what may change.

    >>> row = REPAIRS["calibrated"]
    >>> row.needs, row.cost, row.reference
    ('inputs', 1, 'docs/how-it-works/calibration.md')
    """

    method: Method
    run: Run
    applies: Rule = always
    by_auto: Rule = never
    behind: str = ""
    unjudged: Rule = never
    by_score: bool = False
    settings: Any = None
    judges_itself: bool = False
    fits_beside: bool = False

    def __post_init__(self) -> None:
        """Refuse a row that could not be run."""
        check_is(self.method, Method, "method", "it comes first: Repair(Method('mine', 'Mine', '#000000'), run)")
        if not callable(self.run):
            raise InvalidConfig(
                f"run is a {type(self.run).__name__}; give a function: def run(observation, evidence, seed, settings)"
            )

    name = property(attrgetter("method.name"), doc="In records, configurations and `--method`.")
    label = property(attrgetter("method.label"), doc="In tables and legends.")
    reference = property(attrgetter("method.reference"), doc="Where it is derived.")
    needs = property(attrgetter("method.needs"), doc="One of `quietnn.methods.NEEDS`.")
    cost = property(attrgetter("method.cost"), doc="About how many passes it takes.")

    def __call__(
        self,
        observation: Observation[Any, Any],
        evidence: Evidence,
        *,
        seed: int = 0,
        settings: Any = None,
        where: Where = WEIGHTS,
    ) -> Repaired:
        """Repair what arrived, by changing what may change.

        Raises:
            InvalidConfig: if the evidence is not enough, or the settings are those of another method.
        """
        # That shares of classes are known is the caller's to say.
        has = "labels" if evidence.has_labels else "shares" if evidence.has_inputs else "nothing"
        has = has if evidence.teacher is None else "teacher"
        is_served = NEEDS.index(self.needs) <= NEEDS.index(has) or (self.by_score and evidence.score is not None)
        if not is_served:
            what, call = _ASKS.get(self.needs, ("inputs, and there are none", "inputs"))
            raise InvalidConfig(f"{self.name} needs {what}; call repair(model, {call}, method={self.name!r}, ...)")
        if settings is not None and not isinstance(settings, type(self.settings)):
            takes = "no settings" if self.settings is None else f"settings=quietnn.{type(self.settings).__name__}(...)"
            raise InvalidConfig(f"settings is a {type(settings).__name__}; {self.name} takes {takes}")
        at_unit_gain = observation.at_unit_gain()
        options = where.options if where.weights_stay and self.fits_beside else {}
        settings = self.settings if settings is None else settings
        made = self.run(at_unit_gain, evidence, seed, settings, **options)
        check_is(made, Repaired, f"what {self.name} returned", f"return Repaired(model, {self.name!r}, passes)")
        if not where.weights_stay or options:
            return made
        model, beside, kept = projected(at_unit_gain, made.model, where)
        return replace(made, model=model, details={**made.details, "beside": beside, "kept": kept})


class _Repairs(Mapping[str, Repair]):
    """The table of repairs by name. Those of other packages are found by their entry points."""

    def __init__(self) -> None:
        self._rows: dict[str, Repair] = {}
        self._has_all = False

    def __getitem__(self, name: str) -> Repair:
        if name not in self.rows():
            raise unknown_choice("method", name, self._rows)
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows())

    def __len__(self) -> int:
        return len(self.rows())

    def __contains__(self, name: object) -> bool:
        return name in self.rows()

    def remove(self, name: str) -> None:
        """Take a row out again, with its place in legends."""
        self._rows.pop(name, None)
        METHODS.pop(name, None)

    def rows(self) -> dict[str, Repair]:
        """All rows, ours and those of plugins, which are loaded when they are first asked for."""
        if not self._has_all:
            self._has_all = True
            import quietnn.repairs.table  # noqa: F401 - its rows register themselves

            for plugin in entry_points(group="quietnn.repairs"):
                plugin.load()
        return self._rows


REPAIRS = _Repairs()
"""Every repair by name: what `repair(method=...)`, sweeps, `auto`, `--method` and legends know."""


def register(repair: Repair) -> Repair:
    """Add a repair to `REPAIRS`, so that it can be named wherever a method is named.

    A package of yours can do so at start by an entry point in the group `quietnn.repairs` that names the module.

    >>> def nothing(observation, evidence, seed, settings):
    ...     return Repaired(observation.received, "nothing")
    >>> register(Repair(Method("nothing", "Nothing", "#000000", needs="nothing"), nothing)).name
    'nothing'
    >>> REPAIRS.remove("nothing")

    Raises:
        InvalidConfig: if another repair has that name.
    """
    if not isinstance(repair, Repair):
        raise InvalidConfig(f"register takes a Repair, not a {type(repair).__name__}: register(Repair(method, run))")
    rows = REPAIRS.rows()
    if rows.get(repair.name, repair) is not repair:
        raise InvalidConfig(f"there is a repair called {repair.name!r} already; choose another name")
    if repair.needs not in NEEDS:
        raise unknown_choice("needs", repair.needs, NEEDS)
    rows[repair.name] = repair
    METHODS.setdefault(repair.name, repair.method)
    return repair
