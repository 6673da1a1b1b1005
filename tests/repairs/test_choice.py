"""The rule of choice, on losses made by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quietnn.losses import Verdict
from quietnn.repairs.choice import accuracy_of_choice, at_least, choose


def verdict(losses: list[float]) -> Verdict:
    values = torch.tensor(losses, dtype=torch.float64)
    return Verdict(values, (values < 1).double())


columns = st.lists(st.floats(0, 10) | st.just(float("inf")), min_size=6, max_size=6)


@given(columns, columns, columns)
def test_nothing_worse_than_ml_is_ever_chosen(ml: list[float], simple: list[float], elaborate: list[float]) -> None:
    verdicts = {"ml": verdict(ml), "simple": verdict(simple), "elaborate": verdict(elaborate)}
    chosen = choose(verdicts)
    assert float(verdicts[chosen].losses.mean()) <= float(verdicts["ml"].losses.mean())


def test_a_clear_gain_wins_and_a_draw_between_repairs_goes_to_the_smaller_loss() -> None:
    ml, better = verdict([3.0, 3.2, 2.9, 3.1]), verdict([1.0, 1.3, 0.9, 1.1])
    assert choose({"ml": ml, "simple": ml, "elaborate": better}) == "elaborate"
    assert choose({"ml": ml, "simple": better, "elaborate": verdict([1.1, 1.2, 0.9, 1.0])}) == "elaborate"
    assert choose({"ml": ml, "simple": better, "elaborate": better}) == "simple", "of two that are equal, the simpler"


def test_the_weights_as_they_came_win_a_draw() -> None:
    ml, hardly = verdict([1.0, 1.3, 0.9, 1.1]), verdict([1.1, 1.2, 0.9, 1.0])
    assert choose({"ml": ml, "repair": hardly}) == "ml"


def test_pairs_count_not_levels() -> None:
    hard = torch.tensor([0.0, 5.0, 10.0, 15.0, 20.0, 25.0])
    ml, better = verdict((hard + 0.5).tolist()), verdict(hard.tolist())
    assert choose({"ml": ml, "better": better}) == "better", "half a unit on every example, whatever its own level"


def test_a_smaller_loss_with_fewer_right_answers_does_not_win() -> None:
    """Noise makes a network sure of its mistakes; shrinking makes it unsure of everything."""
    sure = Verdict(torch.tensor([0.1] * 8 + [20.0] * 4), torch.tensor([1.0] * 8 + [0.0] * 4))
    unsure = Verdict(torch.full((12,), 2.0), torch.tensor([1.0] * 3 + [0.0] * 9))
    gentle = Verdict(torch.tensor([0.2] * 8 + [14.0] * 4), sure.right)
    assert choose({"ml": sure, "shrunk": unsure}) == "ml"
    assert choose({"ml": sure, "gentle": gentle, "shrunk": unsure}) == "gentle", "the next one is taken"
    one_lost = Verdict(unsure.losses, torch.tensor([1.0] * 7 + [0.0] * 5))
    assert choose({"ml": sure, "shrunk": one_lost}) == "shrunk", "one of twelve is chance"
    without = {"ml": Verdict(sure.losses, None), "shrunk": Verdict(unsure.losses, None)}
    assert choose(without) == "shrunk", "where labels are no class numbers the loss alone counts"


def test_if_nothing_is_finite_the_weights_stay_as_they_came() -> None:
    infinite = verdict([float("inf")] * 3)
    assert choose({"ml": infinite, "other": infinite}) == "ml"
    assert choose({"ml": infinite, "other": verdict([1.0, 2.0, 3.0])}) == "other"


def test_the_best_of_many_lucky_ones_is_not_believed() -> None:
    """Candidates that are all right half of the time: the best looks better than that, and is not expected to be."""
    generator = torch.Generator().manual_seed(0)
    expected, seen = [], []
    for _ in range(40):
        losses = 2 * torch.rand(20, 40, generator=generator, dtype=torch.float64)
        verdicts = {"ml" if index == 0 else str(index): verdict(row.tolist()) for index, row in enumerate(losses)}
        halves = list(torch.arange(40).split(20))
        expected.append(accuracy_of_choice(verdicts, halves))
        best = min(verdicts, key=lambda name: float(verdicts[name].losses.mean()))
        seen.append(float(verdicts[best].right.mean()))
    assert sum(expected) / 40 == pytest.approx(0.5, abs=0.03)
    assert sum(seen) / 40 > 0.56


def test_without_class_numbers_there_is_no_accuracy_to_expect() -> None:
    losses = torch.tensor([1.0, 2.0])
    assert accuracy_of_choice({"ml": Verdict(losses, None)}, list(torch.arange(2).split(1))) is None


@given(st.integers(1, 500), st.floats(0, 1))
def test_the_lower_limit_is_not_above_what_was_seen(num_examples: int, accuracy: float) -> None:
    assert 0 <= at_least(accuracy, num_examples) <= accuracy + 1e-9


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 0.9, 0.97])
def test_the_lower_limit_holds_as_often_as_it_says(accuracy: float) -> None:
    counts = torch.arange(101, dtype=torch.float64)
    chance = torch.distributions.Binomial(100, torch.tensor(accuracy, dtype=torch.float64)).log_prob(counts).exp()
    held = torch.tensor([at_least(count / 100, 100) <= accuracy for count in range(101)])
    assert float(chance[held].sum()) > 0.965
    if accuracy < 0.95:
        assert float(chance[held].sum()) < 0.99, "nor so low that it says nothing"


def test_a_fit_that_has_seen_more_than_was_judged_is_taken_unless_another_is_clearly_better() -> None:
    ml, fit = verdict([2.0, 2.1, 1.9, 2.0]), verdict([1.5, 1.0, 1.4, 1.1])
    slightly, clearly = verdict([1.0, 1.3, 1.0, 1.3]), verdict([0.5, 0.1, 0.4, 0.1])
    assert choose({"ml": ml, "simple": slightly, "fit": fit}) == "simple"
    assert choose({"ml": ml, "simple": slightly, "fit": fit}, fitted=["fit"]) == "fit"
    assert choose({"ml": ml, "simple": clearly, "fit": fit}, fitted=["fit"]) == "simple"
    assert choose({"ml": slightly, "fit": fit}, fitted=["fit"]) == "fit"
    assert choose({"ml": ml, "simple": slightly}, fitted=["fit"]) == "simple"
    wrong = Verdict(fit.losses, torch.zeros(4))
    right = Verdict(ml.losses, torch.ones(4))
    assert choose({"ml": right, "fit": wrong}, fitted=["fit"]) == "ml", "fewer answers are right"
