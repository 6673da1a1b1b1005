"""Noisy weights in their groups, and the map of each group."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, InvalidWeights, QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.repairs.affine import ML, MMSE, AffineDenoiser, Temperatures, mmse
from quietnn.repairs.grouped import GroupedWeights


@pytest.fixture
def weights() -> dict[str, Tensor]:
    return {
        "a.weight": torch.tensor([[3.0, -3.0], [3.0, -3.0]]),
        "a.bias": torch.tensor([3.0, -3.0]),
        "b.weight": torch.tensor([[0.1], [-0.1]]),
    }


def test_statistics_are_estimated_per_group(weights: dict[str, Tensor]) -> None:
    whole = GroupedWeights.of(weights, 1.0)
    assert whole.statistics["whole"].num_weights == 8
    layers = GroupedWeights.of(weights, 1.0, groups="layerwise")
    assert layers.statistics == {"a": WeightStatistics(0.0, 8.0, 6), "b": WeightStatistics(0.0, 0.0, 2)}


def test_a_group_without_signal_is_zeroed_by_mmse_and_kept_by_ml(weights: dict[str, Tensor]) -> None:
    layers = GroupedWeights.of(weights, 1.0, groups="layerwise")
    assert layers.denoisers(MMSE)["b"] == AffineDenoiser(0.0, 0.0)
    assert layers.denoisers(ML)["b"] == AffineDenoiser(1.0, 0.0)
    with pytest.raises(InfeasibleTemperatures, match=r"lambda' = 1.01 is outside \[0, 1 \+ eta\) = \[0, 1\)"):
        layers.denoisers({"a": ML, "b": Temperatures(1.01)})


@given(st.floats(0.0, 20.0), st.floats(0.0, 0.99), st.floats(-2.0, 2.0))
def test_layerwise_on_one_layer_equals_whole(noise_variance: float, lambda_prime: float, beta: float) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = {"fc.weight": torch.randn(4, 6, generator=generator), "fc.bias": torch.randn(4, generator=generator)}
    temperatures = Temperatures(lambda_prime, beta)
    estimates = [
        by_group.estimate(by_group.denoisers(temperatures))
        for by_group in (GroupedWeights.of(layer, noise_variance, groups=groups) for groups in ("whole", "layerwise"))
    ]
    assert all(torch.equal(estimates[0][name], estimates[1][name]) for name in layer)


def test_clean_statistics_are_used_as_given(weights: dict[str, Tensor]) -> None:
    clean = WeightStatistics(1.0, 3.0, 8)
    by_group = GroupedWeights.of(weights, 1.0, statistics={"whole": clean})
    assert by_group.denoisers(MMSE) == {"whole": mmse(clean, 1.0)}


def test_each_group_has_its_own_map_and_all_tensors_are_estimated(weights: dict[str, Tensor]) -> None:
    by_group = GroupedWeights.of(weights, 1.0, groups={"matrices": ["a.weight", "b.weight"], "biases": ["a.bias"]})
    estimate = by_group.estimate({"matrices": AffineDenoiser(2.0, 0.0), "biases": AffineDenoiser(0.0, 7.0)})
    assert set(estimate) == set(weights)
    assert torch.equal(estimate["a.weight"], 2 * weights["a.weight"])
    assert torch.equal(estimate["a.bias"], torch.tensor([7.0, 7.0]))


def test_estimates_go_where_they_are_asked_to(weights: dict[str, Tensor]) -> None:
    by_group = GroupedWeights.of(weights, 1.0)
    out = {name: torch.empty_like(tensor) for name, tensor in weights.items()}
    estimate = by_group.estimate(by_group.denoisers(MMSE), out=out)
    assert all(estimate[name] is out[name] for name in weights)
    assert torch.equal(weights["a.bias"], torch.tensor([3.0, -3.0])), "what was received stays"


@pytest.mark.parametrize("form", ["centred", "uncentred", "zero-mean"])
def test_the_form_reaches_the_denoisers(form: str) -> None:
    by_group = GroupedWeights.of({"w": torch.tensor([1.0, 3.0])}, 0.5, form=form)
    rho = {"centred": 0.0, "uncentred": 2.0, "zero-mean": 0.0}[form]
    assert by_group.denoisers(ML)["whole"] == AffineDenoiser(1.0, rho)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"noise_variance": -1.0}, QuietnnError, "noise_variance is -1.0; a variance must be"),
        ({"noise_variance": math.nan}, QuietnnError, "noise_variance is nan; a variance must be"),
        ({"form": "middle"}, InvalidConfig, "form is 'middle'; choose one of"),
        ({"groups": "rows"}, QuietnnError, "no grouping 'rows'; choose one of"),
        ({"groups": {"g": []}}, QuietnnError, "group 'g' is empty"),
        ({"statistics": {}}, InvalidConfig, "no statistics for group 'whole'; the groups are whole"),
        ({"weights": {}}, InvalidWeights, "no noisy parameter at all"),
        ({"weights": {"w": torch.tensor([math.nan])}}, InvalidWeights, "w holds 1 values that are not finite"),
        ({"weights": {"w": torch.tensor([1])}}, InvalidWeights, "w is torch.int64"),
    ],
)
def test_bad_input(weights: dict[str, Tensor], arguments: dict[str, object], error: type, message: str) -> None:
    build: Callable[..., GroupedWeights] = GroupedWeights.of
    with pytest.raises(error, match=message):
        build(**{"weights": weights, "noise_variance": 1.0, **arguments})


@pytest.mark.parametrize("temperatures", [{"a": ML}, {"a": ML, "b": ML, "c": ML}])
def test_temperatures_for_other_groups(weights: dict[str, Tensor], temperatures: dict[str, Temperatures]) -> None:
    with pytest.raises(InvalidConfig, match=r"differ in '[bc]'; give one pair for each group"):
        GroupedWeights.of(weights, 1.0, groups="layerwise").denoisers(temperatures)
