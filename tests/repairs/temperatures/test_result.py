"""Which trial is the best: by accuracy, by loss, and never what is not a number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.repairs.temperatures.result import Criterion, Trial, Tried, TuningResult
from quietnn.repairs.temperatures.searches import product_grid
from quietnn.score import Score

measures = st.floats(0, 1) | st.just(math.nan)


def test_ties_are_broken_by_loss_and_then_by_order() -> None:
    scores = {0.0: (0.8, 0.5), 1.0: (0.9, 0.4), 2.0: (0.9, 0.3), 3.0: (0.9, 0.3)}
    grid = product_grid([0.5], scores)
    result = Tried(lambda t: Score(*scores[t.beta], num_examples=10)).on(grid)
    assert result.temperatures.beta == 2.0
    assert Tried(lambda t: Score(*scores[t.beta], num_examples=10)).on(grid[::-1]).temperatures.beta == 3.0


def test_ties_left_to_the_order_of_the_trials() -> None:
    scores = {0.0: (0.8, 0.1), 1.0: (0.9, 0.4), 2.0: (0.9, 0.3)}
    grid = product_grid([0.5], scores)
    result = Tried(lambda t: Score(*scores[t.beta], num_examples=10), "accuracy-only").on(grid)
    assert result.temperatures.beta == 1.0


def test_by_loss_alone() -> None:
    scores = {0.0: (0.9, 0.5), 1.0: (0.1, 0.4)}
    result = Tried(lambda t: Score(*scores[t.beta], num_examples=10), "loss").on(product_grid([0.5], scores))
    assert result.temperatures.beta == 1.0


@given(st.lists(st.tuples(measures, measures), min_size=1), st.sampled_from(Criterion))
def test_what_is_not_a_number_never_beats_a_number(pairs: list[tuple[float, float]], criterion: Criterion) -> None:
    trials = [Trial(i, Score(accuracy, loss, 1)) for i, (accuracy, loss) in enumerate(pairs)]
    best = TuningResult.of(trials, criterion).best.score
    assert best is not None
    if criterion is not Criterion.LOSS:
        assert best.accuracy == max(
            (a for a, _ in pairs if not math.isnan(a)), default=pytest.approx(math.nan, nan_ok=True)
        )
    else:
        assert best.loss == min(
            (loss for _, loss in pairs if not math.isnan(loss)), default=pytest.approx(math.nan, nan_ok=True)
        )


def test_nothing_feasible() -> None:
    with pytest.raises(QuietnnError, match=r"none of the 2 temperatures is feasible; add some with lambda' < 1"):
        TuningResult.of([Trial(2.0, None), Trial(3.0, None)])


def test_an_unknown_criterion() -> None:
    with pytest.raises(
        InvalidConfig,
        match=r"criterion is 'accurcy'; did you mean 'accuracy'\? choose one of accuracy, accuracy-only, loss",
    ):
        TuningResult.of([Trial(0.5, Score(0.5, 1.0, 10))], "accurcy")
