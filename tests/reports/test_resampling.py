"""Resampled draws and test examples."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from tests.reports.shortcuts import make_curve

from quietnn.reports.curves import Curve
from quietnn.reports.gains import gain_db
from quietnn.reports.resampling import expanded_tail, resampled_means, student_quantile

NUM_EXAMPLES = 400


def answered(shares: list[list[float]], *, tested: str = "a", method: str = "ml") -> Curve:
    """A curve at 0, 1, ... dB whose first so many answers are right: two draws of one accuracy have the same ones."""
    right = np.arange(NUM_EXAMPLES) < np.asarray(shares)[:, :, None] * NUM_EXAMPLES
    curve = make_curve(method, list(range(len(shares[0]))), right.mean(axis=2).tolist())
    return dataclasses.replace(curve, right=right, tested=tested)


def test_examples_spread_as_far_as_their_number_says() -> None:
    """Three equal draws tell nothing of other draws; what is left is the binomial error of 400 examples."""
    curve = answered([[0.5, 0.8]] * 3)
    means, again = resampled_means(curve, curve, 4000)
    assert np.array_equal(means, again)
    assert means.mean(axis=0) == pytest.approx([0.5, 0.8], abs=0.002)
    assert means.std(axis=0) == pytest.approx([0.025, 0.02], rel=0.05)
    alone = resampled_means(dataclasses.replace(curve, right=None), curve, 100)[0]
    assert alone.std(axis=0) == pytest.approx([0.0, 0.0], abs=1e-12)


def test_draws_spread_as_they_do_without_answers() -> None:
    """With answers the variance is that of the draws and that of the examples together."""
    curve = answered([[0.3], [0.5], [0.7], [0.5]])
    means = resampled_means(curve, curve, 8000)[0]
    alone = resampled_means(dataclasses.replace(curve, right=None), curve, 8000)[0]
    assert curve.right is not None
    of_examples = curve.right.mean(axis=0).var() / NUM_EXAMPLES
    assert means.var() == pytest.approx(alone.var() + of_examples, rel=0.03)


def test_curves_of_the_same_examples_are_paired() -> None:
    """One more right answer at each WNR: what moves one curve moves the other, unless other examples tested it."""
    theirs = answered([[0.2, 0.6, 0.9]] * 6)
    ours = answered([[0.2025, 0.6025, 0.9025]] * 6, method="mmse")
    paired = gain_db(ours, theirs, 0.5, num_resamples=2000)
    apart = gain_db(dataclasses.replace(ours, tested="b"), theirs, 0.5, num_resamples=2000)
    assert None not in (paired.low, paired.high, apart.low, apart.high)
    assert apart.high - apart.low > 5 * (paired.high - paired.low)  # type: ignore[operator]


def test_a_result_that_is_missing_counts_for_nothing() -> None:
    curve = answered([[0.5, 0.8], [0.9, 0.8]])
    merits = curve.merits.copy()
    merits[1, 0] = math.nan
    means = resampled_means(dataclasses.replace(curve, merits=merits), curve, 2000)[0]
    assert np.nanmean(means, axis=0) == pytest.approx([0.5, 0.8], abs=0.005)
    assert np.isnan(means[:, 0]).mean() == pytest.approx(0.25, abs=0.05)


def test_blocks_of_resamples_are_those_of_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = answered([[0.5, 0.8]] * 2)
    whole = resampled_means(curve, curve, 50)[0]
    monkeypatch.setattr("quietnn.reports.resampling._MOST_COUNTS", 7 * NUM_EXAMPLES)
    assert resampled_means(curve, curve, 50)[0] == pytest.approx(whole)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30, 499])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_quantile_is_that_of_scipy(degrees: int, confidence: float) -> None:
    expected = stats.t.ppf((1 + confidence) / 2, degrees)
    assert student_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-6)


def test_many_draws_need_no_expansion() -> None:
    tails = [expanded_tail(0.95, num_draws) for num_draws in (3, 5, 10, 100, 2000)]
    assert tails == sorted(tails)
    assert tails[-1] == pytest.approx(0.025, rel=1e-2)
