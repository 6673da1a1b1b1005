"""The nearest network that can stand beside the weights, for repairs that rewrite them."""

from typing import Any

import pytest
import torch
from tests.repairs.blobs import blobs, norm_net, plain_net
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig
from quietnn.observation import Observation, observe
from quietnn.repairs.base import REPAIRS
from quietnn.repairs.beside.project import projected
from quietnn.repairs.beside.where import Where
from quietnn.repairs.fitting.whitened import PosteriorSettings
from quietnn.repairs.front import repair
from quietnn.targets import with_weights

DIGITAL, RANK_TWO = Where("digital"), Where("adapter", rank=2)


def changed(observation: Observation[nn.Module, float], name: str, weight: Tensor) -> nn.Module:
    return with_weights(observation.received, {name: weight})


def test_factors_and_low_rank_are_found_again_exactly() -> None:
    torch.manual_seed(0)
    observation = transmit(plain_net(), wnr_db=3.0, seed=1)
    received = observation.weights["0.weight"]
    factors = torch.rand(16, 1) + 0.5
    scaled = changed(observation, "0.weight", factors * received)
    model, beside, kept = projected(observation, scaled, DIGITAL)
    torch.testing.assert_close(beside.scales["0.weight"], factors)
    assert kept == 1.0
    assert not beside.low_rank
    thin = changed(observation, "0.weight", received + torch.randn(16, 2) @ torch.randn(2, 8))
    assert projected(observation, thin, DIGITAL)[2] < 0.9
    model, beside, kept = projected(observation, thin, RANK_TWO)
    assert kept > 1 - 1e-6
    assert not beside.scales
    torch.testing.assert_close(dict(model.named_parameters())["0.weight"], dict(thin.named_parameters())["0.weight"])


def test_more_rank_keeps_more_and_the_best_factor_is_the_best() -> None:
    observation = transmit(plain_net(), wnr_db=3.0, seed=1)
    other = changed(observation, "0.weight", torch.randn(16, 8, generator=torch.Generator().manual_seed(0)))
    kept = [projected(observation, other, Where("adapter", rank=rank))[2] for rank in (1, 3, 6)]
    assert 0 < projected(observation, other, DIGITAL)[2] < kept[0] < kept[1] < kept[2] < 1
    factors = projected(observation, other, DIGITAL)[1].scales["0.weight"]
    received, wanted = observation.weights["0.weight"], other.state_dict()["0.weight"]
    best = (factors * received - wanted).square().sum()
    assert all((factor * received - wanted).square().sum() > best for factor in (factors * 1.1, factors * 0.9))


def test_a_budget_is_kept() -> None:
    observation = transmit(plain_net(), wnr_db=3.0, seed=1)
    clean = plain_net()
    for budget in (0.3, 0.5):
        beside = projected(observation, clean, Where("adapter", budget=budget))[1]
        assert 0.2 < beside.share(clean) <= budget


SHORT = PosteriorSettings(num_steps=2, num_guard_steps=1)


@pytest.mark.parametrize(
    ("gain", "offset", "where"),
    [(1.0, 0.0, {"trainable": "adapter", "rank": 2}), (0.7, 0.01, {"trainable": "digital"})],
)
@pytest.mark.parametrize("name", [name for name in REPAIRS if not name.startswith("auto")])
def test_every_method_can_stand_beside_the_weights(
    name: str, gain: float, offset: float, where: dict[str, Any]
) -> None:
    inputs, labels = blobs()
    network = norm_net()
    sent = transmit(network, wnr_db=0.0, seed=2)
    arrived = with_weights(network, {key: gain * one + offset for key, one in sent.weights.items()})
    observation = Observation(arrived, sent.noise_variance, gain, offset)
    row = REPAIRS[name]
    if not row.applies(observe(observation)):
        return
    settings = SHORT if isinstance(row.settings, PosteriorSettings) else None
    asked = {"teacher": network} if row.needs == "teacher" else {"labels": labels}
    result = repair(observation, inputs, method=name, settings=settings, **asked, **where)
    wrapped, merged = result.beside.wrap(arrived), result.beside.merge(arrived)
    with torch.no_grad():
        expected = result.model(inputs)
        torch.testing.assert_close(wrapped(inputs), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(merged(inputs), expected, atol=1e-5, rtol=1e-5)


def test_what_was_free_to_rewrite_weights_has_nothing_beside_them() -> None:
    result = repair(norm_net(), blobs()[0], method="calibrated", wnr_db=3.0)
    with pytest.raises(InvalidConfig, match="trainable='digital'"):
        _ = result.beside
