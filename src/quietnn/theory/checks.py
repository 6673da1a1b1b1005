"""Refuse a setting no theorem speaks of, before any formula sees it."""

import math

from quietnn.errors import InvalidConfig


def require_variances(*, weight_variance: float, noise_variance: float) -> None:
    """Both variances finite, the weights' above zero, the noise's at least zero.

    >>> require_variances(weight_variance=1.0, noise_variance=-0.5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    quietnn.errors.InvalidConfig: noise_variance is -0.5; it must be finite and at least 0 ...
    """
    if not (math.isfinite(weight_variance) and weight_variance > 0):
        raise InvalidConfig(
            f"weight_variance is {weight_variance}; it must be finite and above 0 (a variance, not a standard "
            "deviation); give the variance of the clean weights"
        )
    if not (math.isfinite(noise_variance) and noise_variance >= 0):
        raise InvalidConfig(
            f"noise_variance is {noise_variance}; it must be finite and at least 0 (a variance, not a standard "
            "deviation); use 0 for a noiseless channel"
        )


def require_count(name: str, value: int, *, at_least: int = 1) -> None:
    """A whole number that is large enough.

    >>> require_count("num_hidden", 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    quietnn.errors.InvalidConfig: num_hidden is 0; it must be a whole number of at least 1; ...
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise InvalidConfig(
            f"{name} is {value!r}; it must be a whole number of at least {at_least}; give {name}={at_least} or more"
        )


def require_finite(name: str, value: float, *, above: float = -math.inf) -> None:
    """A finite number above a limit.

    >>> require_finite("input_limit", float("nan"), above=0.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    quietnn.errors.InvalidConfig: input_limit is nan; it must be a finite number above 0.0; ...
    """
    if not (math.isfinite(value) and value > above):
        limit = "" if above == -math.inf else f" above {above}"
        raise InvalidConfig(
            f"{name} is {value}; it must be a finite number{limit}; the paper's examples lie between 0.1 and 1"
        )
