"""Decibels and ratios; the only place with a logarithm to base ten."""

import math
from numbers import Real

from quietnn.errors import QuietnnError, check_is


def db_to_ratio(decibels: float) -> float:
    """The power ratio of a number of decibels, `10 ** (decibels / 10)`.

    >>> db_to_ratio(20.0), db_to_ratio(float("inf"))
    (100.0, inf)
    """
    check_is(decibels, Real, "a ratio in decibels", "give a number: wnr_db=6.0")
    if math.isnan(decibels) or decibels == -math.inf:
        raise QuietnnError(
            f"a ratio of {decibels} dB has no meaning here; give a number of decibels, "
            "or +inf for a channel without noise"
        )
    try:
        ratio = math.inf if decibels == math.inf else 10.0 ** (decibels / 10.0)
    except OverflowError as error:
        raise QuietnnError(f"{decibels} dB is too large for a float; use +inf for a noiseless channel") from error
    if ratio == 0:
        raise QuietnnError(f"{decibels} dB is too small for a float; give at least -3000 dB")
    return ratio


def ratio_to_db(ratio: float) -> float:
    """The decibels of a power ratio, `10 log10(ratio)`; a ratio of zero is -inf dB.

    >>> ratio_to_db(100.0)
    20.0
    """
    if math.isnan(ratio) or ratio < 0:
        raise QuietnnError(f"a power ratio of {ratio} has no decibels; it must be zero or more")
    if ratio == 0:
        return -math.inf
    return 10.0 * math.log10(ratio)
