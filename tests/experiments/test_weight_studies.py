"""Studies of the embedded network's weights."""

import math

import pytest

from quietnn.errors import InvalidWeights
from quietnn.experiments.weight_studies import channel_errors, gaussianity


def test_the_whole_model_comes_first_and_the_layers_make_it_up() -> None:
    whole, *layers = gaussianity("digits", 4.0)
    assert whole["layer"] == ""
    assert whole["wnr_db"] == pytest.approx(4.0)
    assert sum(layer["num_weights"] for layer in layers) == whole["num_weights"]
    assert len({record["noise_variance"] for record in (whole, *layers)}) == 1
    assert all(record["cost_db"] >= 0 for record in layers)


def test_without_noise_no_prior_matters() -> None:
    with pytest.raises(InvalidWeights, match="choose a finite WNR"):
        next(gaussianity("digits", math.inf))


def test_white_noise_is_what_it_was_told_to_be() -> None:
    whole, *tensors = channel_errors("digits", "awgn:wnr_db=6", seed=3)
    assert whole["effective_wnr_db"] == pytest.approx(6.0)
    assert whole["squared_over_told"] == pytest.approx(1.0, abs=0.02)
    assert abs(whole["excess_kurtosis"]) < 0.1
    assert sum(tensor["num_weights"] for tensor in tensors) == whole["num_weights"]
    assert "quantiles" not in tensors[0]


def test_coarse_rounding_is_not_gaussian_and_follows_no_seed() -> None:
    one, other = (list(channel_errors("digits", "quantise:num_bits=3", seed=seed)) for seed in (0, 1))
    assert one[0]["distance"] > 0.02
    assert abs(one[0]["excess_kurtosis"]) > 0.5
    assert [record["mean_squared_error"] for record in one] == [record["mean_squared_error"] for record in other]
