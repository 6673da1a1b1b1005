"""Tuning a model with a score of one's own."""

import copy
from collections.abc import Callable, Mapping

import numpy
import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.evidence import Evidence
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.denoise import denoise
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.temperatures.searches import product_grid
from quietnn.repairs.temperatures.tune import Search, mmse_pb_gradient, tune
from quietnn.score import Score, Split, SubsetScore
from quietnn.targets import noisy_weights, with_weights

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
    result = tune(received, score=score, noise_variance=noise_variance, groups=groups)
    assert snapshot(received.state_dict()) == before
    temperatures = result.details["temperatures"]
    best = denoise(received, noise_variance=noise_variance, groups=groups, temperatures=temperatures).model
    assert score(best) == result.details["search"].best.score, "the temperatures give the network that was scored"
    assert snapshot(best.state_dict()) == snapshot(result.model.state_dict()), "and that is the one returned"
    assert score(best).loss < score(received).loss


def test_a_grid_is_scored_point_by_point(tiny_net: nn.Module, score: Callable[[nn.Module], Score]) -> None:
    observed = transmit(tiny_net, wnr_db=-5.0, seed=0)
    grid = product_grid([0.0, 0.5, 1.0, 50.0], [0.0, 0.3])
    result = tune(observed, score=score, search=Search(grid=grid)).details["search"]
    assert [trial.temperatures for trial in result.trials] == list(grid)
    assert [trial.score is None for trial in result.trials] == [False] * 6 + [True] * 2
    by_hand = denoise(observed, temperatures=grid[3]).model
    assert result.trials[3].score == score(by_hand)
    unchanged = next(trial for trial in result.trials if trial.temperatures == ML)
    assert unchanged.score == score(observed.received), "no trial leaks into the next"


def test_mmse_wins_where_it_must(tiny_net: nn.Module, score: Callable[[nn.Module], Score]) -> None:
    observed = transmit(tiny_net, wnr_db=0.0, seed=1)
    result = tune(observed, score=score, search=Search(grid=[ML, MMSE, Temperatures(1.2)]))
    assert result.details["temperatures"] == MMSE


def test_without_beta_means_without_beta_layerwise_too(
    tiny_net: nn.Module, score: Callable[[nn.Module], Score]
) -> None:
    observed = transmit(tiny_net, wnr_db=0.0, seed=0)
    result = tune(observed, score=score, groups="layerwise", with_beta=False)
    assert {pair.beta for pair in result.details["temperatures"].values()} == {0.0}
    assert result.name == "mmse_p_layerwise"
    assert tune(observed, score=score, with_beta=False).details["temperatures"].beta == 0.0


def test_without_noise_the_answer_is_ml(tiny_net: nn.Module, score: Callable[[nn.Module], Score]) -> None:
    assert tune(tiny_net, score=score, noise_variance=0.0).details["temperatures"] == ML
    layers = tune(tiny_net, score=score, noise_variance=0.0, groups="layerwise")
    assert set(layers.details["temperatures"].values()) == {ML}


@pytest.mark.parametrize("kind", [float, torch.tensor, numpy.float32])
def test_a_score_may_be_any_number_with_a_direction(
    tiny_net: nn.Module, score: Callable[[nn.Module], Score], kind: Callable[[float], object]
) -> None:
    observed = transmit(tiny_net, wnr_db=0.0, seed=1)
    search = Search(grid=[ML, MMSE, Temperatures(1.2)])
    by_loss = tune(observed, score=lambda one: kind(score(one).loss), higher_is_better=False, search=search)
    by_gain = tune(observed, score=lambda one: kind(-score(one).loss), search=search)
    assert by_loss.details["temperatures"] == by_gain.details["temperatures"] == MMSE
    wrong_way = tune(observed, score=lambda one: kind(score(one).loss), search=search)
    assert wrong_way.details["temperatures"] == Temperatures(1.2)


def test_without_beta_a_grid_that_is_raced_has_none_either(tiny_net: nn.Module) -> None:
    observed = transmit(tiny_net, wnr_db=0.0, seed=0)
    score = SubsetScore(lambda network, positions: Score(0.5, 1.0, len(positions)), num_examples=10)
    search = Search(whole="racing", grid=product_grid([0.5, 1.0], [0.0, 0.3]))
    found = tune(observed, score=score, search=search, with_beta=False)
    assert {trial.temperatures.beta for trial in found.details["search"].trials} == {0.0}


def test_labels_are_enough_without_a_score() -> None:
    torch.manual_seed(0)
    network, inputs = nn.Linear(6, 3), torch.randn(40, 6)
    labels = network(inputs).argmax(1)
    observed = transmit(network, wnr_db=0.0, seed=0)
    found = tune(observed, inputs, labels)
    evidence = Evidence(inputs, labels)
    assert (found.name, found.passes < 20) == ("mmse_pb", True)
    assert evidence.score_of(found.model).accuracy >= evidence.score_of(observed.received).accuracy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_variance": -1.0}, "noise_variance is -1.0"),
        ({"groups": "rows"}, "no grouping 'rows'"),
        ({"search": Search(grid=[])}, "the grid is empty"),
        ({"score": None}, r"tune needs inputs, .*tune\(model, inputs"),
        ({"score": None, "inputs": torch.zeros(4, 3)}, r"tune needs labels, .*tune\(model, inputs, labels"),
        ({"score": lambda network: "good"}, "the score returned a str; return one number"),
    ],
)
def test_bad_input(
    tiny_net: nn.Module, score: Callable[[nn.Module], Score], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(QuietnnError, match=message):
        tune(tiny_net, **{"score": score, "noise_variance": 0.1, **arguments})


def test_a_search_is_checked_when_it_is_made() -> None:
    with pytest.raises(QuietnnError, match="criterion is 'f1'; choose one of accuracy, accuracy-only, loss"):
        Search(criterion="f1")


def test_no_noisy_parameter_at_all(score: Callable[[nn.Module], Score]) -> None:
    with pytest.raises(InvalidWeights, match=r"no noisy parameter at all"):
        tune(nn.BatchNorm1d(3), score=score, noise_variance=1.0)


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

    result = tune(observe(network, noise_variance=0.001, noisy=names), score=changed, groups="layerwise")
    assert seen == set(names)
    assert list(result.details["temperatures"]) == ["conv", "bn"]


NOISES = {
    "by layer": {"0": 0.0005, "3": 0.05},
    "one layer clean": {"0": 0.0, "3": 0.03},
    "by tensor": {"0.weight": 0.05, "0.bias": 0.001, "3.weight": 0.01, "3.bias": 0.1},
    "by weight": {"0.weight": torch.linspace(0.0, 0.1, 8), "0.bias": 0.001, "3": 0.02},
}


def with_noise(model: nn.Module, noise: Mapping[str, float | Tensor]) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    own = {name: noise.get(name, noise.get(name.partition(".")[0])) for name in noisy_weights(model)}
    return with_weights(
        model,
        {
            name: tensor + torch.as_tensor(own[name]).sqrt() * torch.randn(tensor.shape, generator=generator)
            for name, tensor in noisy_weights(model).items()
        },
    )


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("normed_by", ["miniature", "layer_normed"])
def test_the_network_built_by_gradient_has_the_weights_that_were_judged(
    kind: str, normed_by: str, request: pytest.FixtureRequest
) -> None:
    """Tuned and applied at one noise: where it differs within a layer, the layer's mean."""
    data = request.getfixturevalue(normed_by)
    observation = Observation(with_noise(data.model, NOISES[kind]), NOISES[kind])
    evidence = Evidence(data.inputs, data.labels)
    made = mmse_pb_gradient(observation, evidence)
    judge = Scratch(observation, evidence)
    held_out = judge.judge(noisy_weights(made.model), Split.of(len(evidence), 0.2, seed=0).held_out)
    judged = made.details["held_out_loss"]
    assert held_out == pytest.approx(min(judged.values()), rel=1e-4)
    if kind in ("by tensor", "by weight"):  # elsewhere the start may be as good as what follows it
        assert judged[0] > min(judged.values()), "it has moved"
