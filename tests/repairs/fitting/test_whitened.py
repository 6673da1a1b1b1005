"""The Gaussian part of the posterior, and the steps from it."""

import math

import pytest
import torch
from tests.repairs.blobs import Squared, blobs, gaussian, trained
from torch import nn

from quietnn.channels.transmit import transmit
from quietnn.evidence import Evidence
from quietnn.moments import WeightStatistics
from quietnn.observation import Observation
from quietnn.repairs.affine import mmse
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.whitened import PosteriorSettings, Whitened, maximise, trust_radius
from quietnn.repairs.grouped import GroupedWeights
from quietnn.targets import noisy_weights


def test_a_linear_model_with_squared_loss_reaches_the_closed_form() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    truth = 1.5 * torch.randn(6, generator=generator, dtype=torch.float64) + 0.3
    labels = inputs @ truth + torch.randn(30, generator=generator, dtype=torch.float64)
    model = nn.Linear(6, 1, bias=False).double()
    received = truth + torch.randn(6, generator=generator, dtype=torch.float64) * 0.8
    with torch.no_grad():
        model.weight.copy_(received[None])
    prior = WeightStatistics(mean=0.3, variance=2.25, num_weights=6)
    # normal equations of sum (y - x w)^2 / 2 + |w - r|^2 / (2 sz) + |w - mu|^2 / (2 sw)
    precision = inputs.T @ inputs + torch.eye(6, dtype=torch.float64) * (1 / 0.64 + 1 / 2.25)
    exact = torch.linalg.solve(precision, inputs.T @ labels + received / 0.64 + 0.3 / 2.25)
    whitened = gaussian(GroupedWeights.of(noisy_weights(model), 0.64, statistics={"whole": prior}))
    scratch = Scratch(Observation(model, 0.64), Evidence(mean_loss=Squared(inputs, labels), num_examples=30))
    settings = PosteriorSettings(num_steps=800, step_size=0.1, prior=1.0)
    fit = maximise(scratch, whitened, torch.arange(30), settings=settings)
    assert torch.allclose(fit.weights["weight"][0], exact, atol=1e-4)
    assert not torch.allclose(exact, received, atol=0.05), "the examples must have something to say"


def test_whitening_combines_both_gaussians() -> None:
    weights = {"a.weight": torch.tensor([1.0, 5.0])}
    prior = WeightStatistics(mean=1.0, variance=3.0, num_weights=2)
    whitened = gaussian(GroupedWeights.of(weights, 1.0, statistics={"whole": prior}))
    assert whitened.centre["a.weight"].tolist() == [1.0, 4.0]
    assert whitened.spread["a.weight"] == pytest.approx(math.sqrt(3.0 / 4.0))


def test_the_trust_radius_bounds_the_maximum() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs, labels = torch.randn(20, 6, generator=generator), torch.randn(20, generator=generator)
    torch.manual_seed(0)
    observation = transmit(nn.Linear(6, 1, bias=False), noise_variance=0.05, seed=0)
    by_group = GroupedWeights.of(noisy_weights(observation.received), 0.05)
    scratch, whitened = (
        Scratch(observation, Evidence(mean_loss=Squared(inputs, labels), num_examples=20)),
        gaussian(by_group),
    )
    start = 20 * scratch.judge(whitened.centre, torch.arange(20))
    settings = PosteriorSettings(num_steps=200, prior=1.0)
    fit = maximise(scratch, whitened, torch.arange(20), settings=settings)
    assert 0 < fit.move <= trust_radius(start, 6)
    assert trust_radius(math.inf, 6) == 0.0


def test_a_layer_that_is_mostly_noise_is_free_where_batch_norm_undoes_its_scale() -> None:
    """About `r`, the spread of a layer with a BatchNorm behind it is 1 / theta times that about MMSE."""
    network = trained(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    received = transmit(network, wnr_db=-3.0, seed=0)
    weights = noisy_weights(received.received)
    by_group = GroupedWeights.of(weights, received.noise_variance, groups="layerwise")
    inputs, labels = blobs()
    scratch = Scratch(received, Evidence(inputs, labels), blended=True)
    free = scratch.scale_free()
    assert free >= {"0.weight", "0.bias"}
    assert not {"3.weight", "3.bias"} & free
    about_mmse, about_received = Whitened.of(by_group, weights), Whitened.of(by_group, weights, free)
    for name in ("0.weight", "3.weight"):
        group = next(group for group, members in by_group.groups.items() if name in members)
        theta = mmse(by_group.statistics[group], received.noise_variance).theta
        expected = about_mmse.spread[name] / (theta if name in free else 1.0)
        assert about_received.spread[name] == pytest.approx(expected)


def test_noise_by_weight_moves_each_weight_within_its_own_spread() -> None:
    network = trained(nn.Linear(8, 3))
    noise = {name: torch.full_like(weight, 0.04) for name, weight in noisy_weights(network).items()}
    by_group = GroupedWeights.of(noisy_weights(network), 0.04, groups="layerwise")
    by_weight = GroupedWeights.of(noisy_weights(network), noise, groups="layerwise", statistics=by_group.statistics)
    one, each = gaussian(by_group), gaussian(by_weight)
    for name, spread in one.spread.items():
        assert torch.allclose(torch.as_tensor(spread), each.spread[name], rtol=1e-5)
    noise["0.weight"][0] = 0.0
    known = Observation(network, noise)
    scratch = Scratch(known, Evidence(*blobs()))
    exact = gaussian(GroupedWeights.of(noisy_weights(network), noise, groups="layerwise"))
    moved = maximise(scratch, exact, torch.arange(scratch.num_examples)).weights["0.weight"]
    assert torch.equal(moved[0], noisy_weights(network)["0.weight"][0])
    assert not torch.equal(moved[1:], noisy_weights(network)["0.weight"][1:])
