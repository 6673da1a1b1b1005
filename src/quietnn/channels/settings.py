"""Checks of what a channel is set to; each message names the setting, its value and its limits."""

import math
from numbers import Integral, Real

from quietnn.errors import InvalidConfig
from quietnn.units import db_to_ratio

LOWEST_LINK_DB = -100.0
"""Below it a link carries nothing, and its noise variances come near the end of the floats."""


def check_number(name: str, value: object, low: float, high: float, *, note: str = "") -> None:
    """Refuse what is no number from `low` to `high`.

    >>> check_number("spread", 2.0, 0, 1000)
    """
    if not (isinstance(value, Real) and low <= float(value) <= high):
        raise InvalidConfig(f"{name} is {value!r}; give {low:g} to {high:g}{note}")


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is no whole number from `low` to `high`.

    >>> check_whole("block", 512, 1, 1024)
    """
    if not (isinstance(value, Integral) and low <= int(value) <= high):
        raise InvalidConfig(f"{name} is {value!r}; give a whole number, {low} to {high}")


def check_link_db(value: object) -> None:
    """Refuse a link's signal-to-noise ratio that is none, or too low for anything to arrive.

    >>> check_link_db(10.0)
    """
    if not isinstance(value, Real):
        raise InvalidConfig(f"wnr_db is {value!r}; give a number of decibels, for example 10.0")
    if float(value) < LOWEST_LINK_DB and float(value) != -math.inf:
        raise InvalidConfig(f"wnr_db is {value}; nothing arrives at so low a ratio, give {LOWEST_LINK_DB:g} or more")
    db_to_ratio(float(value))
