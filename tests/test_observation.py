"""What arrived: gain and offset undone, noise in any of its forms, and what is refused."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.observation import Observation, observe
from quietnn.weights import NORMALISATION_TYPES

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()


def test_a_model_becomes_an_observation_and_an_observation_stays_one(model: nn.Module) -> None:
    observation = observe(model, noise_variance=0.1)
    assert observation.received is model
    assert observation.noise_variance == 0.1
    assert list(observation.weights) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert observe(observation) is observation
    assert observe(observation, noise_variance=0.2).noise_variance == 0.2, "what is told here counts"


@pytest.mark.parametrize("kind", ["module", "state dict", "tensor"])
def test_modules_state_dicts_and_tensors_arrive_alike(model: nn.Module, kind: str) -> None:
    what = {"module": model, "state dict": model.state_dict(), "tensor": model[0].weight.detach()}[kind]
    observation = Observation(what, 0.1, gain=2.0, offset=0.5)
    undone = observation.at_unit_gain()
    assert type(undone.received) is type(what)
    for name, tensor in undone.weights.items():
        torch.testing.assert_close(tensor, (observation.weights[name] - 0.5) / 2)
    assert (undone.gain, undone.offset) == (1.0, 0.0)


def test_undoing_a_gain_leaves_what_arrived_alone_and_remembers_it(model: nn.Module, snapshot: Snapshot) -> None:
    before = snapshot(model.state_dict())
    observation = Observation(model, 0.1, gain=0.5)
    undone = observe(observation)
    assert undone is observe(observation), "once is enough"
    assert undone.as_received is observation
    assert torch.equal(undone.received[1].weight, model[1].weight), "normalisation did not go through the channel"
    assert snapshot(model.state_dict()) == before
    assert Observation(model, 0.1).at_unit_gain().as_received is None


def test_gains_by_tensor(model: nn.Module) -> None:
    gains = {"0.weight": 2.0, "2.weight": 4.0}
    undone = Observation(model, 0.1, gain=gains, offset={"0.weight": 1.0, "2.weight": 0.0}).at_unit_gain()
    torch.testing.assert_close(undone.received[0].weight, (model[0].weight - 1) / 2)
    torch.testing.assert_close(undone.received[2].weight, model[2].weight / 4)
    assert torch.equal(undone.received[0].bias, model[0].bias), "only what has a gain went through the channel"
    with pytest.raises(InvalidConfig, match=r"tells no gain of '0.bias', only of 0.weight, 2.weight"):
        Observation(model, 0.1, gain=gains, noisy=("0.weight", "0.bias")).at_unit_gain()


def test_the_wnr_tells_the_noise(model: nn.Module) -> None:
    received = transmit(model, wnr_db=0.0, seed=0)
    expected = WeightStatistics.from_clean(received.weights.values()).variance / 2
    assert observe(received.received, wnr_db=0.0).noise_variance == pytest.approx(expected)
    big = nn.Linear(300, 300)
    there = transmit(big, wnr_db=6.0, seed=0)
    assert observe(there.received, wnr_db=6.0).noise_variance == pytest.approx(there.noise_variance, rel=0.02)


def test_a_wnr_is_about_the_weights_at_unit_gain(model: nn.Module) -> None:
    plain, thrice = observe(model, wnr_db=3.0), observe(Observation(model, None, gain=3.0), wnr_db=3.0)
    assert thrice.noise_variance == pytest.approx(plain.noise_variance / 9)


def test_noise_by_tensor_has_a_mean(model: nn.Module) -> None:
    noise = {"0.weight": 0.1, "0.bias": 0.0, "2.weight": torch.full((2, 4), 0.3), "2.bias": 0.0}
    assert observe(model, noise_variance=noise).mean_noise_variance == pytest.approx((12 * 0.1 + 8 * 0.3) / 26)


def test_names_and_normalisations_of_ones_own(model: nn.Module) -> None:
    named = observe(model, noise_variance=0.1, noisy=["0.weight", "1.weight"])
    assert list(named.weights) == ["0.weight", "1.weight"]
    renamed = observe(named, noisy=["2.weight"], normalisation=(*NORMALISATION_TYPES, nn.Linear))
    assert (renamed.noisy, renamed.noise_variance) == (("2.weight",), 0.1)
    assert nn.Linear in renamed.normalisation
    with pytest.raises(QuietnnError, match="nope"):
        _ = observe(model, noise_variance=0.1, noisy=["nope"]).weights


def test_the_same_facts_about_another_state_start_with_an_empty_memory(model: nn.Module) -> None:
    observation = Observation(model, 0.1, rounded=True)
    calls: list[int] = []
    for _ in range(2):
        assert observation.remember("key", lambda: calls.append(1) or 7) == 7
    assert calls == [1]
    other = observation.on(nn.Linear(2, 2))
    assert (other.rounded, other.noise_variance) == (True, 0.1)
    assert list(other.weights) == ["weight", "bias"]
    assert other.remember("key", lambda: 8) == 8


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (nn.Linear, r"Linear is a class; pass a network: repair\(Linear\(\), ...\)"),
        ("model.safetensors", "is a str; .*quietnn repair FILE OUT"),
        (None, "the first argument is a NoneType; give what arrived"),
        ([torch.zeros(3)], "the first argument is a list"),
        (3.0, "the first argument is a float"),
    ],
)
def test_what_cannot_have_arrived(what: object, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        observe(what, noise_variance=0.1)


def test_noise_given_twice_or_not_at_all(model: nn.Module) -> None:
    with pytest.raises(InvalidConfig, match=r"given twice, noise_variance=0.1 and wnr_db=6; leave one out"):
        observe(model, noise_variance=0.1, wnr_db=6)
    with pytest.raises(InvalidConfig, match=r"unknown; give it: noise_variance=1e-4 or wnr_db=6"):
        _ = observe(model).mean_noise_variance


def test_a_state_dict_is_no_network(model: nn.Module) -> None:
    with pytest.raises(
        QuietnnError, match=r"what arrived is a OrderedDict; load it first, model.load_state_dict\(state\)"
    ):
        _ = observe(model.state_dict(), noise_variance=0.1).model


def test_weights_that_were_written_into_are_looked_at_again() -> None:
    model = nn.Linear(20, 20)
    observation = quietnn.observe(model, noise_variance=1e-3)
    quietnn.denoise(observation)
    with torch.no_grad():
        model.weight.mul_(50)
    again, fresh = (quietnn.denoise(one).model for one in (observation, quietnn.observe(model, noise_variance=1e-3)))
    assert torch.equal(again.weight, fresh.weight)
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    with pytest.raises(QuietnnError, match="not finite"):
        quietnn.repair(observation, method="ml")


def test_nothing_is_written_in_place_where_a_gain_was_undone() -> None:
    observation = quietnn.Observation(torch.randn(100), 0.5, gain=0.5)
    with pytest.raises(QuietnnError, match="leave in_place out"):
        quietnn.denoise(observation, in_place=True)
