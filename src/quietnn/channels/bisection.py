"""Bisection where every cost is dear and several at once are hardly dearer than one: a reading of a whole model."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

NUM_HALVINGS = 20
AT_ONCE = 5
"""Steps whose costs are asked for together. Of entropies of weights the next five middles are mostly foreseen."""

Costs = Callable[[Sequence[float]], Sequence[float]]
"""The cost of each of some steps."""


def smallest_within(costs: Costs, limit: float, low: float, high: float) -> float:
    """The smallest step between two, found by halving their ratio 20 times, whose cost is at most the limit.

    The middles that plain bisection would look at next are foreseen from the costs known so far. Whichever turn out
    to be those that it does look at count, so the result is that of plain bisection however wrong the foresight was.

    Args:
        costs: larger for smaller steps, by and large.
        limit: of the cost.
        low: a step that costs more.
        high: a step that costs nothing.

    >>> round(smallest_within(lambda steps: [-math.log2(step) for step in steps], 3.0, 2.0**-10, 1.0), 5)
    0.125
    """
    known, done = {high: 0.0}, 0
    while done < NUM_HALVINGS:
        ahead = _foreseen(known, limit, low, high)[: NUM_HALVINGS - done]
        known.update(zip(ahead, costs(ahead), strict=True))
        while done < NUM_HALVINGS and (middle := math.sqrt(low * high)) in known:
            low, high = (middle, high) if known[middle] > limit else (low, middle)
            done += 1
    return high


def _foreseen(known: Mapping[float, float], limit: float, low: float, high: float) -> list[float]:
    """The next middles, if costs run straight between those known and rise by one where a step is halved."""
    steps = sorted(known)
    places, values = np.log2(steps), [known[step] for step in steps]
    middles: list[float] = []
    for _ in range(AT_ONCE):
        middle = math.sqrt(low * high)
        middles.append(middle)
        place = math.log2(middle)
        cost = float(np.interp(place, places, values)) + max(float(places[0]) - place, 0.0)
        low, high = (middle, high) if cost > limit else (low, middle)
    return middles
