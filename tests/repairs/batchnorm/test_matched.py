"""Matching to the clean network: exact where gain and shift suffice, the best of these elsewhere, and all beside."""

import copy

import pytest
import torch
from tests.repairs.conftest import Miniature
from torch import Tensor, nn

from quietnn.channels.memories import PCM
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.batchnorm.matched import has_same_norms, match
from quietnn.repairs.front import repair


class Pictures(nn.Module):
    """Two convolutions with BatchNorm, one of them depthwise, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.depthwise, self.deep_norm = nn.Conv2d(12, 12, 3, groups=12), nn.BatchNorm2d(12)
        self.mixed, self.last_norm = nn.Conv2d(12, 10, 1, bias=False), nn.BatchNorm2d(10)
        self.head = nn.Linear(10, 4)

    def forward(self, images: Tensor) -> Tensor:
        made = self.norm(self.first(images)).relu()
        made = self.deep_norm(self.depthwise(made)).relu()
        made = self.last_norm(self.mixed(made)).relu()
        outputs: Tensor = self.head(made.mean((2, 3)))
        return outputs


@pytest.fixture
def pictures() -> Pictures:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Pictures()
        network.train()(torch.rand(200, 3, 8, 8))
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = 1.0
                layer.weight.data.uniform_(0.5, 1.5)
                layer.bias.data.uniform_(-0.3, 0.3)
        network(torch.rand(200, 3, 8, 8))
    return network.eval()


def images(number: int = 100, seed: int = 1) -> Tensor:
    return torch.rand(number, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def error(network: nn.Module, clean: nn.Module, inputs: Tensor) -> float:
    with torch.no_grad():
        return float((network(inputs) - clean(inputs)).square().mean())


def features_error(network: nn.Module, clean: nn.Module) -> float:
    """How far apart they are in front of their heads, which are not matched."""
    bodies = [copy.deepcopy(one) for one in (network, clean)]
    for body in bodies:
        body.head = nn.Identity()
    return error(*bodies, images(seed=4))


def test_a_gain_of_each_channel_is_undone_exactly(pictures: Pictures) -> None:
    noisy = copy.deepcopy(pictures)
    with torch.no_grad():
        for layer in (noisy.first, noisy.depthwise, noisy.mixed):
            layer.weight.mul_(torch.rand(len(layer.weight), 1, 1, 1, generator=torch.Generator().manual_seed(2)) + 0.5)
    assert error(noisy, pictures, images()) > 1e-4
    result = match(noisy, images(), teacher=pictures)
    assert error(result.model, pictures, images(seed=3)) < 1e-9
    assert all(alike > 0.999 for alike in result.details["alike"].values())


def test_means_agree_and_spreads_are_half_way_between_least_squares_and_equal(miniature: Miniature) -> None:
    observation = transmit(miniature.model, wnr_db=0.0, seed=1)
    result = match(observation, miniature.inputs, teacher=miniature.model).model
    with torch.no_grad():
        made, target = (net[:2](miniature.inputs) for net in (result, miniature.model))
    torch.testing.assert_close(made.mean(0), target.mean(0), atol=1e-4, rtol=1e-4)
    alike = torch.stack([torch.corrcoef(torch.stack([a, z]))[0, 1] for a, z in zip(target.T, made.T, strict=True)])
    assert float(alike.min()) > 0
    torch.testing.assert_close(made.std(0), target.std(0) * alike.sqrt(), atol=1e-4, rtol=1e-3)


def test_no_weight_changes_and_all_that_does_stands_beside(pictures: Pictures) -> None:
    observation = transmit(pictures, channel=PCM(seconds=86400.0), seed=3)
    for asked in ("digital", "adapter"):
        result = repair(observation, images(), teacher=pictures, method="matched", trainable=asked)
        beside = result.details["beside"]
        wrapped = beside.wrap(observation.received)
        kept = dict(wrapped.named_parameters())
        for name, weight in observation.weights.items():
            there = kept.get(name, kept.get(name.replace(".", ".layer.")))
            assert there is not None
            assert torch.equal(there, weight), asked
        assert error(wrapped, result.model, images(seed=4)) < 1e-9
        assert error(result.model, pictures, images(seed=4)) < error(observation.received, pictures, images(seed=4))


def test_a_gain_that_a_batch_norm_undoes_needs_no_factor(pictures: Pictures) -> None:
    observation = transmit(pictures, channel=PCM(seconds=86400.0), seed=3)
    beside = repair(observation, images(), teacher=pictures, method="matched").details["beside"]
    assert list(beside.scales) == list(beside.low_rank) == ["head.weight"]


def test_the_head_gets_a_factor_and_a_bias_by_least_squares(miniature: Miniature) -> None:
    observation = transmit(miniature.model, wnr_db=0.0, seed=1)
    result = match(observation, miniature.inputs, teacher=miniature.model)
    with torch.no_grad():
        left = miniature.model(miniature.inputs) - result.model(miniature.inputs)
        outputs = result.model(miniature.inputs)
    assert float(left.mean(0).abs().max()) < 1e-4
    assert float((left * outputs).mean(0).abs().max()) < 1e-3
    assert list(result.details["beside"].scales) == ["3.weight"]


def test_a_head_that_carries_no_noise_stays(pictures: Pictures) -> None:
    observation = transmit(pictures, wnr_db=0.0, seed=5)
    noisy = tuple(name for name in observation.weights if not name.startswith("head"))
    result = match(observation.on(observation.received, noisy=noisy), images(), teacher=pictures)
    assert torch.equal(result.model.head.weight, observation.received.head.weight)
    assert error(result.details["beside"].wrap(observation.received), result.model, images()) < 1e-9


@pytest.mark.parametrize("wnr_db", [0.0, 6.0, 12.0])
def test_small_networks_come_nearer_to_the_clean_one(wnr_db: float) -> None:
    """Without a match of the head two of these twelve moved away: noise that is held down makes outputs smaller."""
    for seed in range(4):
        torch.manual_seed(seed)
        clean = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).eval()
        judged = Evidence(torch.randn(300, 4), teacher=clean)
        observation = transmit(clean, wnr_db=wnr_db, seed=seed)
        matched = match(observation, torch.randn(80, 4), teacher=clean).model
        assert judged.score_of(matched).loss < 0.9 * judged.score_of(observation.received).loss


def test_an_adapter_is_nearer_the_larger_it_is_and_keeps_to_its_budget(pictures: Pictures) -> None:
    observation = transmit(pictures, wnr_db=0.0, seed=5)
    asked = {"teacher": pictures, "method": "matched", "trainable": "adapter"}
    errors = [features_error(match(observation, images(), teacher=pictures).model, pictures)]
    for budget in (0.3, 0.6):
        result = repair(observation, images(), budget=budget, **asked)
        assert result.name == "matched_adapter"
        assert result.details["beside"].share(pictures) <= budget
        errors.append(features_error(result.model, pictures))
    assert errors[0] > errors[1] > errors[2]
    by_rank = repair(observation, images(), rank=2, **asked).details["beside"]
    assert {up.shape[1] for up, _ in by_rank.low_rank.values()} == {2}
    assert "depthwise.weight" not in by_rank.low_rank


def test_a_batch_norm_without_gains_gets_other_statistics() -> None:
    torch.manual_seed(0)
    clean = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, affine=False)).eval()
    noisy = copy.deepcopy(clean)
    noisy[0].weight.data *= 2.0
    inputs = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    assert error(match(noisy, inputs, teacher=clean).model, clean, inputs) < 1e-9


def test_a_channel_that_never_varies_gets_the_mean() -> None:
    clean = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    noisy = copy.deepcopy(clean)
    noisy[0].weight.data[0] = 0.0
    inputs = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    result = match(noisy, inputs, teacher=clean).model
    with torch.no_grad():
        torch.testing.assert_close(result(inputs)[:, 0], clean(inputs)[:, 0].mean().expand(50))
    adapted = match(noisy, inputs, teacher=clean, trainable="adapter", rank=1)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in adapted.model.state_dict().values())


def test_a_shared_batch_norm_keeps_what_it_has() -> None:
    norm = nn.BatchNorm1d(3)
    clean = nn.Sequential(nn.Linear(3, 3), norm, nn.Linear(3, 3), norm, nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    noisy = transmit(clean, wnr_db=3.0, seed=0)
    result = match(noisy, torch.rand(20, 3), teacher=clean).model
    assert torch.equal(result[1].running_mean, clean[1].running_mean)
    assert not torch.equal(result[5].running_mean, clean[5].running_mean)


def test_modes_and_the_teacher_stay(pictures: Pictures) -> None:
    observation = transmit(pictures, wnr_db=0.0, seed=5)
    before = copy.deepcopy(pictures.state_dict())
    pictures.train()
    result = match(observation, images(), teacher=pictures).model
    assert pictures.training
    assert not result.training
    pictures.eval()
    assert all(torch.equal(tensor, before[name]) for name, tensor in pictures.state_dict().items())


def test_what_cannot_be_matched_is_refused(pictures: Pictures, miniature: Miniature) -> None:
    observation: Observation[nn.Module, float] = transmit(pictures, wnr_db=0.0, seed=5)
    with pytest.raises(InvalidConfig, match=r"needs the clean network.*teacher=clean"):
        match(observation, images())
    with pytest.raises(InvalidConfig, match=r"matched needs the clean network.*inputs, teacher=clean"):
        repair(observation, images(), method="matched")
    with pytest.raises(InvalidConfig, match="does not have the BatchNorms of this network"):
        match(observation, images(), teacher=miniature.model)
    assert not has_same_norms(pictures, miniature.model)
    with pytest.raises(InvalidConfig, match="no BatchNorm with running statistics"):
        match(nn.Linear(2, 2), torch.rand(4, 2), teacher=nn.Linear(2, 2))
    with pytest.raises(InvalidConfig, match="matching leaves weights as they are"):
        match(observation, images(), teacher=pictures, trainable="weights")
    with pytest.raises(InvalidConfig, match=r"rank is 99; the largest matrix has"):
        match(observation, images(), teacher=pictures, trainable="adapter", rank=99)
    with pytest.raises(QuietnnError, match="at least 2 inputs"):
        match(observation, Evidence(images(1), teacher=pictures))
