"""The posterior of what may move beside the weights."""

from collections.abc import Callable, Mapping

import pytest
import torch
from tests.repairs.blobs import blobs, norm_net, plain_net
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.beside.where import Where
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.subspaces import LowRank, ScaledLowRank
from quietnn.repairs.fitting.whitened import Whitened
from quietnn.repairs.fitting.within import digital, leading
from quietnn.repairs.front import repair
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.posterior import posterior
from quietnn.repairs.self_training import self_train
from quietnn.targets import noisy_weights, with_weights

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


def wide_net() -> nn.Module:
    torch.manual_seed(0)
    inputs, labels = wide_blobs()
    network = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 10))
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimiser.step()
    return network


def wide_blobs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    centres = 2.0 * torch.randn(10, 12, generator=generator)
    labels = torch.arange(200) % 10
    return centres[labels] + torch.randn(200, 12, generator=generator), labels


@torch.no_grad()
def loss_of(network: nn.Module) -> float:
    inputs, labels = wide_blobs()
    return float(nn.functional.cross_entropy(network(inputs), labels))


def test_an_adapter_adds_low_rank_and_scales_and_what_is_digital_adds_scales_alone() -> None:
    observation = transmit(wide_net(), wnr_db=0.0, seed=1)
    received = noisy_weights(observation.received)
    inputs, labels = wide_blobs()
    adapter = posterior(observation, inputs, labels, trainable="adapter", rank=2)
    scaled = posterior(observation, inputs, labels, trainable="digital")
    assert (adapter.name, adapter.details["chosen"]) == ("posterior_adapter", "posterior")
    assert (scaled.name, scaled.details["chosen"]) == ("posterior_digital", "posterior")
    for result in (adapter, scaled):
        assert set(result.beside.scales) == {"0.weight", "2.weight"}
        assert set(result.beside.replaced) == {"0.bias", "2.bias"}
        assert loss_of(result.model) < loss_of(observation.received) - 0.1
        for name, part in result.beside.parts().items():
            assert torch.allclose(part.applied(received[name]), noisy_weights(result.model)[name], atol=1e-6)
    assert not scaled.beside.low_rank
    assert [up.shape[1] for up, _ in adapter.beside.low_rank.values()] == [2, 2]
    assert loss_of(adapter.model) < loss_of(scaled.model)


def test_beside_batch_norm_gains_move_and_weights_whose_scale_it_undoes_stay() -> None:
    torch.manual_seed(0)
    observation = transmit(norm_net(), wnr_db=-6.0, seed=3)
    result = posterior(observation, *blobs(), trainable="digital")
    assert result.details["chosen"] == "posterior"
    assert set(result.beside.scales) == {"3.weight"}, "a BatchNorm follows the first"
    assert set(result.beside.replaced) == {"0.bias", "1.weight", "1.bias", "3.bias"}
    assert set(result.beside.statistics) == {"1.running_mean", "1.running_var"}


def test_statistics_are_calibrated_beside_weights_that_stay(snapshot: Snapshot) -> None:
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    before = snapshot(observation.received.state_dict())
    result = posterior(observation, *blobs(), trainable="digital")
    assert "calibrated" in result.details["held_out_loss"]
    assert snapshot(observation.received.state_dict()) == before


def test_no_noise_changes_nothing(snapshot: Snapshot) -> None:
    model = plain_net()
    for trainable in ("digital", "weights"):
        kept = posterior(model, *blobs(), noise_variance=0.0, trainable=trainable).model
        assert snapshot(kept.state_dict()) == snapshot(model.state_dict())


def test_the_leading_directions_are_those_of_the_gradient() -> None:
    observation = transmit(wide_net(), wnr_db=0.0, seed=1)
    evidence = Evidence(*wide_blobs())
    weights = noisy_weights(observation.received)
    by_group = GroupedWeights.of(weights, observation.noise_variance, groups="layerwise")
    scratch, positions = Scratch(observation, evidence, digital=True), torch.arange(len(evidence))
    gradient = scratch.gradient(weights, positions, torch.Generator())[1]["0.weight"]
    whitened, spaces = digital(scratch, Whitened.of(by_group, weights))
    where, exact = Where("adapter", rank=2), torch.linalg.svd(gradient)[2][:2]
    for beside in (spaces, {}):
        found = leading(scratch, whitened, beside, where, positions, seed=0)["0.weight"]
        assert isinstance(found, ScaledLowRank if beside else LowRank)
        low_rank = found.low_rank if isinstance(found, ScaledLowRank) else found
        assert isinstance(low_rank, LowRank)
        captured, best = (float((gradient @ basis.T).square().sum()) for basis in (low_rank.basis, exact))
        assert captured > 0.98 * best


@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_a_budget_is_never_passed_and_mostly_used(gain: float) -> None:
    network = wide_net()
    sent = transmit(network, wnr_db=0.0, seed=1)
    arrived = with_weights(network, {name: gain * (one + 0.01) for name, one in sent.weights.items()})
    observation = Observation(arrived, sent.noise_variance, gain, 0.01 * gain)
    for budget in (0.5, 0.7):
        beside = posterior(observation, *wide_blobs(), trainable="adapter", budget=budget).beside
        assert budget - 36 / 562 < beside.share(network) <= budget, "a direction has 36 numbers at most"
    with pytest.raises(InvalidConfig, match="scales, gains and biases alone are"):
        posterior(observation, *wide_blobs(), trainable="adapter", budget=0.01)


@pytest.mark.parametrize("trainable", ["digital", "adapter"])
def test_inputs_alone_can_move_what_is_beside(trainable: str, snapshot: Snapshot) -> None:
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    before = snapshot(observation.received.state_dict())
    result = self_train(observation, blobs()[0], trainable=trainable)
    assert result.details["start"] == "calibrated"
    assert "1.weight" in result.beside.replaced
    assert bool(result.beside.low_rank) == (trainable == "adapter")
    assert snapshot(observation.received.state_dict()) == before


def test_factors_run_along_the_outputs_of_transposed_layers() -> None:
    conv1d = pytest.importorskip("transformers.pytorch_utils").Conv1D
    torch.manual_seed(0)
    network = nn.Sequential(conv1d(24, 12), nn.ReLU(), conv1d(10, 24))
    inputs, labels = wide_blobs()
    for trainable in ("digital", "adapter"):
        result = posterior(network, inputs, labels, wnr_db=0.0, trainable=trainable)
        assert result.beside.scales["0.weight"].shape == (1, 24)
        torch.testing.assert_close(result.beside.wrap(network)(inputs), result.model(inputs), atol=1e-5, rtol=1e-5)


def test_they_are_rows_of_the_table() -> None:
    inputs, labels = wide_blobs()
    for method in ("posterior_adapter", "posterior_digital"):
        assert repair(wide_net(), inputs, labels, method=method, wnr_db=3.0).name == method


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trainable": "adapters"}, "trainable is 'adapters'"),
        ({"trainable": "adapter", "rank": 24}, "rank is 24.*1 to 11"),
        ({"trainable": "adapter", "rank": 0}, "rank is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        posterior(wide_net(), *wide_blobs(), wnr_db=3.0, **options)  # type: ignore[arg-type]
