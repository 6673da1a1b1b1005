"""Student's t against scipy."""

import pytest
from scipy import stats

from quietnn.reports.student import expanded_tail, student_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30, 499])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_quantile_is_that_of_scipy(degrees: int, confidence: float) -> None:
    expected = stats.t.ppf((1 + confidence) / 2, degrees)
    assert student_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-9)


def test_many_draws_need_no_expansion() -> None:
    tails = [expanded_tail(0.95, num_draws) for num_draws in (3, 5, 10, 100, 2000)]
    assert tails == sorted(tails)
    assert tails[-1] == pytest.approx(0.025, rel=1e-2)
