"""The coded reference: it spends the capacity, and bisection that asks for several costs at once is bisection."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.channels.digital import NUM_HALVINGS, CodedDigital, SettledCode, bits_per_weight, smallest_within
from quietnn.channels.moments import ErrorMoments, weight_points
from quietnn.noise import mean_of

Cost = Callable[[float], float]


def plain(cost: Cost, limit: float, low: float, high: float) -> float:
    for _ in range(NUM_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > limit else (low, middle)
    return high


def foreseeing(cost: Cost, limit: float, low: float, high: float) -> tuple[float, list[int]]:
    asked: list[int] = []

    def costs(steps: Sequence[float]) -> list[float]:
        asked.append(len(steps))
        return [cost(step) for step in steps]

    return smallest_within(costs, limit, low, high), asked


@given(
    limit=st.floats(0.0, 25.0),
    shape=st.floats(0.1, 5.0),
    waves=st.floats(0.0, 3.0),
    pace=st.floats(0.1, 1000.0),
    high=st.floats(1e-6, 1e6),
)
def test_whatever_the_costs_it_is_plain_bisection(
    limit: float, shape: float, waves: float, pace: float, high: float
) -> None:
    """Also where they rise and fall, and nothing can be foreseen."""

    def cost(step: float) -> float:
        return shape * math.log2(high / step) + waves * math.sin(pace * math.log(step))

    found, asked = foreseeing(cost, limit, high * 2.0**-20, high)
    assert found == plain(cost, limit, high * 2.0**-20, high)
    assert len(asked) <= NUM_HALVINGS


@pytest.mark.parametrize("wnr_db", [-5.0, 6.0, 15.0, 40.0])
def test_entropies_are_foreseen(wnr_db: float, shapes: dict[str, Tensor]) -> None:
    """A fifth to a third of the readings, and few costs that turn out to be of no use."""
    high = 2.5 * max(float(tensor.abs().max()) for tensor in shapes.values())
    capacity = CodedDigital(wnr_db).capacity

    def cost(step: float) -> float:
        return bits_per_weight(shapes, {name: [step] for name in shapes})[0]

    found, asked = foreseeing(cost, capacity, high * 2.0**-20, high)
    assert found == plain(cost, capacity, high * 2.0**-20, high)
    assert CodedDigital(wnr_db, per_tensor=False).steps(shapes) == dict.fromkeys(shapes, found)
    assert len(asked) <= 8
    assert sum(asked) <= 36


def test_steps_do_not_depend_on_the_order_of_tensors(shapes: dict[str, Tensor]) -> None:
    turned = dict(reversed(shapes.items()))
    assert CodedDigital(9.0).steps(shapes) == CodedDigital(9.0).steps(turned)
    assert CodedDigital(9.0).steps({"w": torch.zeros(3)}) == {"w": pytest.approx(2.0**-20, rel=1e-4)}


@pytest.mark.parametrize("wnr_db", [0.0, 6.0, 15.0, 30.0])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_the_code_spends_the_capacity_and_no_more(wnr_db: float, per_tensor: bool, shapes: dict[str, Tensor]) -> None:
    channel = CodedDigital(wnr_db, per_tensor)
    [bits] = bits_per_weight(shapes, {name: [step] for name, step in channel.steps(shapes).items()})
    assert bits <= channel.capacity
    assert bits == pytest.approx(channel.capacity, rel=0.02)


def test_against_the_bound_for_gaussian_weights() -> None:
    """Scalar quantisation at high rate loses 1.53 dB (a quarter bit); at any rate it stays above Shannon's bound."""
    weights = {"w": torch.randn(100_000, generator=torch.Generator().manual_seed(0))}
    for wnr_db in (5.0, 15.0, 30.0):
        received = CodedDigital(wnr_db).transmit(weights, seed=0).received["w"]
        loss_db = 10 * math.log10(float((received - weights["w"]).square().mean()) * (1 + 10 ** (wnr_db / 10)))
        assert 0.0 < loss_db < 2.0
    assert loss_db == pytest.approx(1.53, abs=0.05)


@pytest.mark.parametrize("wnr_db", [0.0, 6.0, 15.0])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_its_error_is_predicted_from_quantiles_of_the_weights(
    wnr_db: float, per_tensor: bool, shapes: dict[str, Tensor]
) -> None:
    channel = CodedDigital(wnr_db, per_tensor)
    observation, points = channel.transmit(shapes, seed=0), {name: weight_points(own) for name, own in shapes.items()}
    decoded = SettledCode(channel.steps(shapes)).transmit(points, seed=0).received
    assert isinstance(observation.noise_variance, dict)
    assert isinstance(observation.gain, dict)
    for name in shapes:
        predicted = ErrorMoments.of(points[name], decoded[name])
        assert predicted.noise_variance == pytest.approx(mean_of(observation.noise_variance[name]), rel=0.05)
        assert predicted.gain == pytest.approx(observation.gain[name], rel=0.05)


def test_one_step_for_the_model_has_the_least_error_and_starves_small_layers() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {
        "large": torch.randn(20_000, generator=generator),
        "small": 0.1 * torch.randn(20_000, generator=generator),
    }
    errors = {}
    for per_tensor in (False, True):
        received = CodedDigital(6.0, per_tensor).transmit(weights, seed=0).received
        errors[per_tensor] = {
            name: float((received[name] - tensor).square().mean()) for name, tensor in weights.items()
        }
    assert sum(errors[False].values()) < sum(errors[True].values())
    assert errors[False]["small"] > 3 * errors[True]["small"]
