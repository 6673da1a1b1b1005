"""Any score: perplexity, F1 and the like need no accuracy, and none is invented for them."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import quietnn
from quietnn.errors import InvalidConfig
from quietnn.score import Score, Split, SubsetScore, as_score, folds, pooled

INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
METHODS = ["mmse_p", "mmse_pb", "mmse_pb_layerwise"]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


@pytest.fixture(scope="module")
def labels(network: nn.Module) -> Tensor:
    return network(INPUTS).argmax(1)


def perplexity(labels: Tensor) -> object:
    return lambda network: functional.cross_entropy(network(INPUTS).detach(), labels).exp()


def f1(labels: Tensor) -> object:
    """Of class 0, as a plain float."""

    def score(network: nn.Module) -> float:
        found, true = network(INPUTS).argmax(1) == 0, labels == 0
        return 2 * int((found & true).sum()) / max(int(found.sum()) + int(true.sum()), 1)

    return score


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["perplexity", "f1"])
def test_a_search_goes_the_way_that_the_score_points(
    network: nn.Module, labels: Tensor, method: str, kind: str
) -> None:
    score = perplexity(labels) if kind == "perplexity" else f1(labels)
    higher = kind == "f1"
    observation = quietnn.transmit(network, wnr_db=-3.0, seed=0)
    made = quietnn.repair(observation, method=method, score=score, higher_is_better=higher)
    values = [trial.score.value for trial in made.details["search"].trials if trial.score is not None]
    reached = float(score(made.model))
    assert reached == pytest.approx(max(values) if higher else min(values))
    received = float(score(observation.received))
    assert reached >= received if higher else reached <= received
    best = made.details["search"].best.score
    assert best.accuracy is None
    assert math.isnan(best.standard_error)
    assert str(best) == f"{reached:.4g}"
    for text in (str(made), repr(made), made._repr_html_(), str(made.details["search"].best)):
        assert "nan" not in text


def test_tune_and_repair_agree_on_a_score(network: nn.Module, labels: Tensor) -> None:
    options = {"score": perplexity(labels), "higher_is_better": False, "wnr_db": 0.0}
    by_tune, by_name = quietnn.tune(network, **options), quietnn.repair(network, method="mmse_pb", **options)
    assert by_tune.details["temperatures"] == by_name.details["temperatures"]
    opposite = quietnn.tune(network, **{**options, "higher_is_better": True})
    assert opposite.details["temperatures"] != by_tune.details["temperatures"]


def test_a_score_beside_labels_is_what_temperatures_are_searched_by(network: nn.Module, labels: Tensor) -> None:
    observation = quietnn.transmit(network, wnr_db=0.0, seed=1)
    made = quietnn.auto(observation, INPUTS, labels, score=perplexity(labels), higher_is_better=False, max_passes=80)
    assert "nan" not in str(made)
    assert 0 < made.details["expected_accuracy"] <= 1


def test_auto_goes_by_a_mean_loss(network: nn.Module, labels: Tensor) -> None:
    """Examples are judged one at a time, as by labels."""
    observation = quietnn.transmit(network, wnr_db=0.0, seed=1)

    def mean_loss(one: nn.Module, positions: Tensor, generator: object) -> Tensor:
        return functional.cross_entropy(one(INPUTS[positions]), labels[positions])

    options = {"max_passes": 80}
    by_loss = quietnn.auto(observation, quietnn.Evidence(mean_loss=mean_loss, num_examples=60), **options)
    by_labels = quietnn.auto(observation, INPUTS, labels, **options)
    losses = {one.name: one.loss for one in by_labels.details["tried"]}
    for one in by_loss.details["tried"]:
        if one.name in ("ml", "mmse", "mmse_layerwise"):
            assert one.loss == pytest.approx(losses[one.name], rel=1e-5)
    assert by_loss.details["expected_accuracy"] is None
    assert "%" not in str(by_loss)


@pytest.mark.parametrize(
    ("score", "text", "number"),
    [
        (Score(0.5, 0.7, 100), "50.0 %", 0.5),
        (Score(None, 0.7, 100), "loss 0.7", 0.7),
        (as_score(12.345, higher_is_better=False), "12.35", 12.345),
        (as_score(torch.tensor(0.25)), "0.25", 0.25),
    ],
)
def test_a_score_is_told_by_what_it_has(score: Score, text: str, number: float) -> None:
    assert str(score) == text
    assert score.number == number


@pytest.mark.parametrize("higher", [True, False])
def test_a_score_that_is_not_a_number_never_wins(higher: bool) -> None:
    assert as_score(math.nan, higher_is_better=higher).loss == math.inf


@pytest.mark.parametrize("returned", [None, "0.5", torch.rand(2), [0.5]])
def test_what_is_no_score(returned: object) -> None:
    with pytest.raises(
        InvalidConfig, match=r"return one number, score=lambda network: float\(...\), or a quietnn.Score"
    ):
        as_score(returned)


def test_parts_without_an_accuracy_have_none_together() -> None:
    together = pooled([Score(None, 1.0, 10), Score(0.5, 3.0, 10)])
    assert (together.accuracy, together.loss, together.num_examples) == (None, 2.0, 20)


def test_a_subset_of_a_subset() -> None:
    score = SubsetScore(lambda network, positions: Score(None, float(positions.sum()), len(positions)), 10)
    assert score.at(torch.tensor([2, 5, 7])).at(torch.tensor([0, 2]))(nn.Identity()).loss == 9.0


@pytest.mark.parametrize(("num_examples", "held_out"), [(2, 0.01), (2, 0.99), (10, 0.2), (101, 0.5)])
def test_a_split_uses_every_example_once_on_two_sides_that_hold_some(num_examples: int, held_out: float) -> None:
    split = Split.of(num_examples, held_out, seed=1)
    assert sorted([*split.fit.tolist(), *split.held_out.tolist()]) == list(range(num_examples))
    assert len(split.fit)
    assert len(split.held_out)
    with pytest.raises(InvalidConfig, match="num_examples is 1"):
        Split.of(1, 0.2, seed=0)
    with pytest.raises(InvalidConfig, match="held_out is 1"):
        Split.of(10, 1.0, seed=0)


def test_folds_hold_every_example_out_once() -> None:
    splits = folds(11, 3, seed=2)
    assert sorted(position for split in splits for position in split.held_out.tolist()) == list(range(11))
    assert all(len(split.fit) + len(split.held_out) == 11 for split in splits)
    with pytest.raises(InvalidConfig, match="num_folds is 12"):
        folds(11, 12, seed=0)
