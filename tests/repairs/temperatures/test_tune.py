"""Tuning a model with a score of one's own."""

import copy
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.denoise import denoise
from quietnn.repairs.temperatures.grid import product_grid
from quietnn.repairs.temperatures.score import Score
from quietnn.repairs.temperatures.tune import tune

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


@pytest.fixture
def score(tiny_net: nn.Module) -> Callable[[nn.Module], Score]:
    """The distance to the clean weights: what MMSE is best at."""
    clean = {name: parameter.detach().clone() for name, parameter in tiny_net.named_parameters()}

    def distance(model: nn.Module) -> Score:
        loss = sum((parameter - clean[name]).square().sum().item() for name, parameter in model.named_parameters())
        return Score(accuracy=1 / (1 + loss), loss=loss, num_examples=100)

    return distance


@pytest.mark.parametrize(
    "groups",
    ["whole", "layerwise", {"one": ["token", "conv.weight"], "two": ["conv.bias", "embed.weight", "head.bias"]}],
)
def test_tuning_improves_on_ml_and_leaves_the_model_alone(
    tiny_net: nn.Module, score: Callable[[nn.Module], Score], snapshot: Snapshot, groups: str
) -> None:
    received, noise_variance = (observed := transmit(tiny_net, wnr_db=0.0, seed=0)).received, observed.noise_variance
    before = snapshot(received.state_dict())
    result = tune(received, score, noise_variance=noise_variance, groups=groups)
    assert snapshot(received.state_dict()) == before
    best = denoise(received, noise_variance=noise_variance, groups=groups, temperatures=result.temperatures)
    assert score(best) == result.best.score, "the temperatures give the network that was scored"
    assert score(best).loss < score(received).loss


def test_a_grid_is_scored_point_by_point(tiny_net: nn.Module, score: Callable[[nn.Module], Score]) -> None:
    observed = transmit(tiny_net, wnr_db=-5.0, seed=0)
    grid = product_grid([0.0, 0.5, 1.0, 50.0], [0.0, 0.3])
    result = tune(observed.received, score, noise_variance=observed.noise_variance, grid=grid)
    assert [trial.temperatures for trial in result.trials] == list(grid)
    assert [trial.score is None for trial in result.trials] == [False] * 6 + [True] * 2
    by_hand = denoise(observed.received, noise_variance=observed.noise_variance, temperatures=grid[3])
    assert result.trials[3].score == score(by_hand)
    unchanged = next(trial for trial in result.trials if trial.temperatures == ML)
    assert unchanged.score == score(observed.received), "no trial leaks into the next"


def test_mmse_wins_where_it_must(tiny_net: nn.Module, score: Callable[[nn.Module], Score]) -> None:
    observed = transmit(tiny_net, wnr_db=0.0, seed=1)
    result = tune(observed.received, score, noise_variance=observed.noise_variance, grid=[ML, MMSE, Temperatures(1.2)])
    assert result.temperatures == MMSE


def test_without_beta_means_without_beta_layerwise_too(
    tiny_net: nn.Module, score: Callable[[nn.Module], Score]
) -> None:
    observed = transmit(tiny_net, wnr_db=0.0, seed=0)
    result = tune(observed.received, score, noise_variance=observed.noise_variance, groups="layerwise", with_beta=False)
    assert {pair.beta for pair in result.temperatures.values()} == {0.0}


def test_without_noise_the_answer_is_ml(tiny_net: nn.Module, score: Callable[[nn.Module], Score]) -> None:
    assert tune(tiny_net, score, noise_variance=0.0).temperatures == ML
    layers = tune(tiny_net, score, noise_variance=0.0, groups="layerwise")
    assert set(layers.temperatures.values()) == {ML}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_variance": -1.0}, "noise_variance is -1.0"),
        ({"groups": "rows"}, "no grouping 'rows'"),
        ({"criterion": "f1"}, "criterion is 'f1'; choose one of accuracy, accuracy-only, loss"),
        ({"grid": []}, "the grid is empty"),
    ],
)
def test_bad_input(
    tiny_net: nn.Module, score: Callable[[nn.Module], Score], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(QuietnnError, match=message):
        tune(tiny_net, score, **{"noise_variance": 0.1, **arguments})  # type: ignore[arg-type]


def test_no_noisy_parameter_at_all(score: Callable[[nn.Module], Score]) -> None:
    with pytest.raises(InvalidWeights, match=r"no noisy parameter at all"):
        tune(nn.BatchNorm1d(3), score, noise_variance=1.0)


def test_the_tensors_named_are_tuned_and_no_others(tiny_net: nn.Module) -> None:
    network = copy.deepcopy(tiny_net)
    with torch.no_grad():
        network.bn.weight.copy_(torch.linspace(0, 1, 4))
    names = ["conv.weight", "bn.weight"]  # one that the usual rule has, and one that it has not
    seen: set[str] = set()

    def changed(judged: nn.Module) -> Score:
        now = dict(judged.named_parameters())
        seen.update(name for name, tensor in network.named_parameters() if not torch.equal(tensor, now[name]))
        return Score(0.5, 1.0, 10)

    result = tune(network, changed, noise_variance=0.001, groups="layerwise", noisy=names)
    assert seen == set(names)
    assert list(result.temperatures) == ["conv", "bn"]
