"""Student's t for whole degrees of freedom, so that reports need no scipy."""

import math
from statistics import NormalDist


def central_probability(angle: float, degrees: int) -> float:
    """`P(|T| < sqrt(degrees) tan(angle))`, the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.

    >>> round(central_probability(math.pi / 4, 1), 6)
    0.5
    """
    cosine, odd = math.cos(angle), degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def student_quantile(confidence: float, degrees: int) -> float:
    """The `t` that a Student variable stays within, on both sides, with a probability.

    >>> round(student_quantile(0.95, 4), 3)
    2.776
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if central_probability(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def expanded_tail(confidence: float, num_draws: int) -> float:
    """The tail to cut from a bootstrap distribution of few draws so that the interval keeps its confidence.

    A bootstrap spreads `sqrt((n - 1) / n)` too little and knows no t; the expanded percentile interval makes up for
    both, `tail = Phi(-sqrt(n / (n - 1)) t)` (Hesterberg, What Teachers Should Know About the Bootstrap, The American
    Statistician 69(4), 2015).

    >>> 0.02 < expanded_tail(0.95, 100) < 0.025, expanded_tail(0.95, 5) < 0.001
    (True, True)
    """
    stretch = math.sqrt(num_draws / (num_draws - 1)) * student_quantile(confidence, num_draws - 1)
    return NormalDist().cdf(-stretch)
