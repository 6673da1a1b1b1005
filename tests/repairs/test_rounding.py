"""Rounded weights told from noisy ones."""

import pytest
import torch

from quietnn.observation import Observation
from quietnn.repairs.rounding import are_rounded, is_on_a_grid

WEIGHT = torch.randn(16, 100, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("step", [0.1, 0.5])
def test_a_step_for_each_channel_is_seen_and_noise_on_top_hides_it(step: float) -> None:
    steps = step * torch.linspace(0.5, 2.0, 16)[:, None]
    rounded = (WEIGHT / steps).round() * steps
    error_std = step / 12**0.5
    assert is_on_a_grid(rounded, error_std)
    assert not is_on_a_grid(rounded + 0.1 * error_std * torch.randn(16, 100), error_std)


def test_channels_that_are_all_zero_count_as_rounded() -> None:
    assert is_on_a_grid(torch.zeros(4, 9), 0.1)


def test_a_model_is_rounded_if_most_of_its_weights_are() -> None:
    noisy, rounded = WEIGHT, WEIGHT.round()
    assert are_rounded(Observation({"a": rounded, "b": noisy[:4]}, 0.09))
    assert not are_rounded(Observation({"a": rounded[:4], "b": noisy}, 0.09))
    assert not are_rounded(Observation({"bias": rounded[0]}, 0.09)), "a vector has no channels to compare"
    assert are_rounded(Observation({"a": rounded}, {"a": torch.full((16, 1), 0.09)}))
    assert are_rounded(Observation({"a": noisy}, 0.09, rounded=True)), "who was told need not look"
