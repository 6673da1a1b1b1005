"""The one call, on everything a user may hold."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.denoise import denoise

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
NOISY = {"token", "conv.weight", "conv.bias", "embed.weight", "head.weight", "head.bias"}
SameBits = Callable[[Tensor, Tensor], bool]
Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


def state_of(target: nn.Module | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return target.state_dict() if isinstance(target, nn.Module) else target


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    bytes_=st.binary(min_size=8, max_size=256),
    noise_variance=st.floats(0.0, 1e6),
    groups=st.sampled_from(["whole", "layerwise"]),
)
def test_ml_returns_the_input_bit_for_bit(
    dtype: torch.dtype, bytes_: bytes, noise_variance: float, groups: str
) -> None:
    """Any bits that make a finite number: negative zeros, subnormals, the largest."""
    raw = torch.frombuffer(bytearray(bytes_[: len(bytes_) // 8 * 8]), dtype=dtype)
    received = raw.where(raw.abs() < 1e150, torch.zeros((), dtype=dtype)) if dtype == torch.float64 else raw
    received = received.where(received.isfinite(), torch.zeros((), dtype=dtype))
    estimate = denoise(received, noise_variance=noise_variance, method="ml", groups=groups).model
    assert torch.equal(estimate.view(torch.uint8), received.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "arguments", [{}, {"method": "mmse_p", "lambda_prime": 1.7}, {"temperatures": Temperatures(0.2, 3.0)}]
)
def test_without_noise_the_input_comes_back(
    dtype: torch.dtype, arguments: dict[str, object], same_bits: SameBits
) -> None:
    received = torch.tensor([-0.0, 1.0, 1e-7, -2.0]).to(dtype)
    assert same_bits(denoise(received, noise_variance=0.0, **arguments).model, received)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES)
def test_with_nothing_but_noise_the_mean_comes_back(dtype: torch.dtype) -> None:
    received = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=dtype)
    assert denoise(received, noise_variance=100.0).model.tolist() == [2.5] * 4


@pytest.mark.parametrize("kind", ["module", "state"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_noisy_parameters_are_denoised_and_nothing_else(
    tiny_net: nn.Module, snapshot: Snapshot, kind: str, in_place: bool, groups: str
) -> None:
    before = snapshot(tiny_net.state_dict())
    target = tiny_net if kind == "module" else tiny_net.state_dict()
    estimate = denoise(target, noise_variance=0.01, groups=groups, in_place=in_place).model
    after = snapshot(state_of(estimate))
    assert {name for name in before if before[name] != after[name]} == NOISY
    assert (estimate is target) == in_place
    assert (snapshot(tiny_net.state_dict()) == before) == (not in_place)
    assert after["embed.weight"] == after["head.weight"]


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_module_state_dict_and_in_place_agree(tiny_net: nn.Module, snapshot: Snapshot, groups: str) -> None:
    by_module = snapshot(denoise(tiny_net, noise_variance=0.02, groups=groups).model.state_dict())
    by_state = snapshot(denoise(tiny_net.state_dict(), noise_variance=0.02, groups=groups).model)
    denoise(tiny_net, noise_variance=0.02, groups=groups, in_place=True)
    assert by_module == by_state == snapshot(tiny_net.state_dict())


def test_tied_weights_are_denoised_once_and_stay_tied(tiny_net: nn.Module) -> None:
    prior = {"whole": WeightStatistics(0.0, 3.0, 10)}
    estimate = denoise(Observation(tiny_net, 1.0, statistics=prior)).model
    assert estimate.head.weight is estimate.embed.weight
    assert torch.equal(estimate.head.weight, 0.75 * tiny_net.head.weight)


def test_integer_buffers_keep_their_value_and_type(tiny_net: nn.Module) -> None:
    tiny_net.bn.num_batches_tracked += 41
    counter = denoise(tiny_net, noise_variance=1.0).model.bn.num_batches_tracked
    assert (counter.item(), counter.dtype) == (41, torch.int64)


def test_a_trainable_model_stays_trainable(tiny_net: nn.Module) -> None:
    estimate = denoise(tiny_net, noise_variance=1.0).model
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in estimate.parameters())


def test_with_clean_statistics_mmse_beats_ml() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(50_000, generator=generator) * 0.05 + 0.02
    observation = transmit(weights, wnr_db=-3.0, seed=0)
    clean = {"whole": WeightStatistics.from_clean([weights])}
    noise_variance = observation.noise_variance
    mmse = denoise(replace(observation, statistics=clean)).model
    blind = denoise(observation.received, noise_variance=noise_variance).model
    wnr = 10**-0.3
    error = lambda estimate: (estimate - weights).square().mean().item() / noise_variance  # noqa: E731
    assert error(observation.received) == pytest.approx(1.0, rel=0.03)
    assert error(mmse) == pytest.approx(wnr / (1 + wnr), rel=0.03)
    assert error(blind) == pytest.approx(error(mmse), rel=0.01), "what a receiver can tell is nearly as good"


BAD = [
    ({"noise_variance": -1.0}, "noise_variance is -1.0; a variance must be finite and not negative"),
    ({"noise_variance": math.nan}, "noise_variance is nan; a variance must be finite"),
    ({"method": "mmse_p", "lambda_prime": 1e9}, "lambda' = 1e.09 is outside .* choose one inside"),
    ({"method": "mmse_p", "lambda_prime": -0.5}, "lambda' = -0.5 is outside"),
    ({"method": "mmse_pb", "lambda_prime": 0.5, "beta": math.inf}, "beta is inf; it must be a finite number"),
    ({"method": "mmse_p"}, "mmse_p needs lambda_prime; give a value"),
    ({"method": "map"}, "there is no method 'map'; choose one of ml, mmse, mmse_p, mmse_pb"),
    ({"lambda_prime": 0.5, "temperatures": Temperatures(0.5)}, "given twice; give either"),
    ({"method": "ml", "temperatures": Temperatures(0.5)}, "take the place of a method, and method is .ml."),
    ({"groups": {"all": ["token"]}}, "each noisy tensor exactly once; look at conv.bias, conv.weight"),
    ({"groups": {"none": []}}, "group 'none' is empty; give each group"),
    ({"groups": "layerwise", "temperatures": {"conv": Temperatures(0.5)}}, "give one pair for each group"),
    ({"noisy": ["token", "nowhere"]}, "'nowhere' is not a tensor of this model; its tensors are"),
    ({"noisy": []}, "no noisy parameter at all; check the model"),
    ({"form": "central"}, "form is 'central'; "),
]


@pytest.mark.parametrize("kind", ["module", "state"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_a_failure_names_the_matter_and_changes_nothing(
    tiny_net: nn.Module, snapshot: Snapshot, kind: str, in_place: bool, arguments: dict[str, object], message: str
) -> None:
    before = snapshot(tiny_net.state_dict())
    target = tiny_net if kind == "module" else tiny_net.state_dict()
    noisy = arguments.get("noisy")
    others = {"noise_variance": 0.01} | {name: value for name, value in arguments.items() if name != "noisy"}
    with pytest.raises(QuietnnError, match=message):
        denoise(observe(target, noisy=noisy), in_place=in_place, **others)  # type: ignore[arg-type]
    assert snapshot(tiny_net.state_dict()) == before


def test_a_later_group_past_its_pole_leaves_the_earlier_ones_alone(tiny_net: nn.Module, snapshot: Snapshot) -> None:
    before = snapshot(tiny_net.state_dict())
    temperatures = {
        "": Temperatures(0.5),
        "conv": Temperatures(0.5),
        "embed": Temperatures(0.5),
        "head": Temperatures(1e9),
    }
    with pytest.raises(QuietnnError, match=r"outside"):
        denoise(tiny_net, noise_variance=0.01, groups="layerwise", temperatures=temperatures, in_place=True)
    assert snapshot(tiny_net.state_dict()) == before


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("method", ["ml", "mmse"])
def test_weights_that_are_not_finite_change_nothing(
    tiny_net: nn.Module, snapshot: Snapshot, value: float, method: str
) -> None:
    with torch.no_grad():
        tiny_net.head.bias[0] = value
    before = snapshot(tiny_net.state_dict())
    with pytest.raises(QuietnnError, match=r"head.bias holds 1 values that are not finite, of 6; repair"):
        denoise(tiny_net, noise_variance=0.1, method=method, in_place=True)
    assert snapshot(tiny_net.state_dict()) == before


def test_integer_tensors() -> None:
    with pytest.raises(QuietnnError, match=r"tensor is torch.int64; only floating point"):
        denoise(torch.arange(3), noise_variance=1.0)
    with pytest.raises(QuietnnError, match=r"n is torch.int32; only floating point"):
        denoise(observe({"n": torch.ones(2, 2, dtype=torch.int32)}, noise_variance=1.0, noisy=["n"]))


def test_no_noisy_parameter_at_all() -> None:
    with pytest.raises(QuietnnError, match=r"no noisy parameter at all"):
        denoise(nn.BatchNorm1d(3), noise_variance=1.0)


def test_temperatures_with_another_method_s_name() -> None:
    with pytest.raises(InvalidConfig, match=r"mmse takes no lambda_prime, but got 0.5"):
        denoise(torch.ones(2), noise_variance=1.0, lambda_prime=0.5)


@pytest.mark.parametrize(
    ("group", "variance", "message"),
    [("layer", 1.0, "no statistics for group 'whole'"), ("whole", -1.0, "weight_variance is -1.0; a variance must")],
)
def test_statistics_that_do_not_fit(group: str, variance: float, message: str) -> None:
    told = {group: WeightStatistics(0.0, variance, 1)}
    with pytest.raises(QuietnnError, match=message):
        denoise(Observation(torch.ones(3), 1.0, statistics=told))
