"""The family, and temperatures searched in every round, as estimators of a sum."""

import pytest
import torch
from tests.federated.sums import NOISY, error, run
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.federated.estimators import Affine, Tuned
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.score import Score


def test_mmse_errs_less_than_ml_and_layerwise_less_than_whole() -> None:
    ml, whole, layers = (error(run(one, -6.0)) for one in (Affine(ML), Affine(MMSE), Affine(MMSE, "layerwise")))
    assert layers < whole < 0.5 * ml


def test_statistics_can_be_told() -> None:
    estimated, told = (error(run(Affine(MMSE, "layerwise"), -6.0, told=told)) for told in (False, True))
    assert told == pytest.approx(estimated, rel=0.3)
    assert told != estimated


def test_temperatures_past_the_pole_take_the_round_as_it_came() -> None:
    past = run(Affine(Temperatures(5.0)), 0.0)
    assert all(torch.equal(past[name], tensor) for name, tensor in run(Affine(ML), 0.0).items())


def test_a_search_uses_the_score_it_is_given_and_no_other() -> None:
    truth = run(Affine(ML))

    def score(candidate: dict[str, Tensor]) -> Score:
        distance = sum(float((candidate[name] - truth[name]).square().sum()) for name in NOISY)
        return Score(accuracy=0.0, loss=distance, num_examples=1)

    found = run(Tuned(), -3.0, score=score)
    assert error(found) < error(run(Affine(ML), -3.0))
    with pytest.raises(InvalidConfig, match="needs a score"):
        run(Tuned(oracle=True), -3.0, score=score)
    assert error(run(Tuned(groups="layerwise"), -3.0, score=score)) <= error(found)
