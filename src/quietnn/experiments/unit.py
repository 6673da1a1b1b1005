"""The pieces that every experiment is cut into, and who runs them: they may run in any order and place."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from quietnn.records import Record

Key = tuple[float, int, str]
"""What tells a record from all others of a run: level, draw, method."""


@dataclass(frozen=True)
class Unit:
    """One noisy network, or one run of a federation, and the methods to try on it.

    Attributes:
        level: the WNR, or what else the channel is set by.
        draw: which repetition.
        methods: names; a federation has one, or the text of a candidate for fixed temperatures.

    >>> Unit(4.0, 0, ("ml", "mmse")).without({(4.0, 0, "ml")})
    Unit(level=4.0, draw=0, methods=('mmse',))
    """

    level: float
    draw: int
    methods: tuple[str, ...]

    def keys(self) -> list[Key]:
        """The keys of the unit's records."""
        return [(self.level, self.draw, method) for method in self.methods]

    def without(self, done: set[Any]) -> "Unit":
        """The part of the unit that is not done yet."""
        return Unit(self.level, self.draw, tuple(key[2] for key in self.keys() if key not in done))

    @property
    def method(self) -> str:
        """The one method of a federation's run."""
        return self.methods[0]


class Worker(Protocol):
    """Loads what it needs when it is made, then runs units."""

    def run(self, unit: Unit) -> Iterator[Record]:
        """The records of a unit."""
        ...
