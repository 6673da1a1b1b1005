"""Examples, samples and the default metric."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.tasks.base import Examples, evaluate_classifier, sample

ONE_HOT = Examples(inputs=torch.eye(4), labels=torch.tensor([0, 1, 2, 0]))


def test_score_of_a_known_classifier() -> None:
    score = evaluate_classifier(nn.Identity(), ONE_HOT, batch_size=3)
    right, wrong = math.log(1 + 3 / math.e), math.log(math.e + 3)
    assert score.accuracy == 0.75
    assert score.num_examples == 4
    assert score.loss == pytest.approx((3 * right + wrong) / 4)


def test_evaluation_uses_eval_mode_and_restores_the_mode() -> None:
    model = nn.Sequential(nn.Dropout(0.9))
    model.train()
    assert evaluate_classifier(model, ONE_HOT).accuracy == 0.75
    assert model.training


def test_a_network_that_overflows_scores_an_infinite_loss() -> None:
    inputs = torch.full((2, 3), math.nan)
    assert evaluate_classifier(nn.Identity(), Examples(inputs, torch.tensor([0, 1]))).loss == math.inf


def test_dict_inputs_are_passed_by_keyword() -> None:
    class Adder(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    examples = Examples({"a": torch.eye(2), "b": torch.zeros(2, 2)}, torch.tensor([0, 1]))
    assert evaluate_classifier(Adder(), examples).accuracy == 1.0
    assert len(examples.take(torch.tensor([1]))) == 1


def test_no_examples_is_an_error() -> None:
    with pytest.raises(InvalidConfig, match="at least one"):
        evaluate_classifier(nn.Identity(), ONE_HOT.take(torch.tensor([], dtype=torch.int64)))


def test_labels_must_match_inputs() -> None:
    with pytest.raises(InvalidConfig, match="3 inputs do not go with 2 labels"):
        Examples(torch.zeros(3, 1), torch.tensor([0, 1]))
    with pytest.raises(InvalidConfig, match="int64"):
        Examples(torch.zeros(2, 1), torch.tensor([0.0, 1.0]))


@given(st.integers(1, 200), st.data(), st.integers(0, 1000))
def test_samples_are_distinct_and_nested(num_total: int, data: st.DataObject, seed: int) -> None:
    larger = data.draw(st.integers(1, num_total))
    smaller = data.draw(st.integers(1, larger))
    many, few = sample(num_total, larger, seed=seed), sample(num_total, smaller, seed=seed)
    assert len(set(many.tolist())) == larger
    assert many[:smaller].tolist() == few.tolist()


def test_asking_for_too_many() -> None:
    with pytest.raises(InvalidConfig, match="asked for 11 examples, there are 10"):
        sample(10, 11, seed=0)


def test_a_later_sample_is_what_follows_in_the_same_order() -> None:
    everything = sample(30, 30, seed=0).tolist()
    assert sample(30, 10, seed=0, first=5).tolist() == everything[5:15]
    assert sample(30, None, seed=0, first=5).tolist() == everything[5:]
    with pytest.raises(InvalidConfig, match="asked for 26 examples after the first 5, there are 25"):
        sample(30, 26, seed=0, first=5)
    with pytest.raises(InvalidConfig, match="leave out the first 30 examples of 30"):
        sample(30, 1, seed=0, first=30)
