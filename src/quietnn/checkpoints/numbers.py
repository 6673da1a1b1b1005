"""Numbers out of files that anybody may have written."""

import math
from typing import Any


def finite_number(value: Any) -> float | None:
    """The value as a float; None if it is no number, not finite, or larger than a float can be.

    >>> finite_number(3), finite_number("3"), finite_number(True), finite_number(10**400)
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
