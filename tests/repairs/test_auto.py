"""`auto` with nothing, with inputs and with labels."""

import copy
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.evidence import Evidence
from quietnn.losses import Verdict
from quietnn.methods import Method
from quietnn.observation import Observation, observe
from quietnn.repairs import auto as module
from quietnn.repairs.base import REPAIRS, Repair, Repaired, always
from quietnn.repairs.choice import at_least
from quietnn.repairs.front import auto
from quietnn.targets import noisy_weights, with_weights

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]
WNR_DB = 4.0
Make = Callable[[Observation, Evidence, int, object], Repaired]


def toy(name: str, make: Make, cost: float = 0) -> Repair:
    """A row that `auto` tries on every network."""
    return Repair(Method(name, name, "#000000", cost=cost), make, by_auto=always)


def only(monkeypatch: pytest.MonkeyPatch, *rows: Repair) -> None:
    """A table of these rows and no others."""
    monkeypatch.setattr(module, "REPAIRS", {row.name: row for row in rows})


@pytest.fixture(scope="module")
def repaired(miniature: object) -> tuple[Observation, Repaired]:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(observation, miniature.inputs, miniature.labels)
    return observation, result


def losses(result: Repaired) -> dict[str, float]:
    return {one.name: one.loss for one in result.details["tried"] if one.loss is not None}


def test_every_candidate_is_tried_and_none_worse_than_ml_wins(repaired: tuple, miniature: object) -> None:
    _, result = repaired
    names = ["ml", "calibrated", "posterior"]
    assert [one.name for one in result.details["tried"]] == names
    given = observe(miniature.model)
    rows = [row for row in REPAIRS.values() if row.applies(given) and row.by_auto(given)]
    assert names == [row.name for row in rows if not row.behind]
    assert {row.behind for row in rows} == {"", "posterior"}
    assert losses(result)[result.name] <= losses(result)["ml"]
    assert module.MAX_PASSES >= result.passes >= sum(one.passes for one in result.details["tried"]) > 0


def test_a_repair_that_judges_itself_is_made_once_and_judged_by_what_it_says(
    miniature: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_examples, calls = len(miniature.labels), []

    def own(observation: Observation, evidence: Evidence, *_: object) -> Repaired:
        calls.append(len(evidence))
        verdict = Verdict(torch.full((num_examples,), 0.01), torch.ones(num_examples))
        return Repaired(copy.deepcopy(miniature.model), "own", 40.0, {"held_out": verdict})

    only(monkeypatch, REPAIRS["ml"], Repair(Method("own", "own", "#000000"), own, by_auto=always, judges_itself=True))
    result = auto(transmit(miniature.model, wnr_db=-3.0, seed=0), miniature.inputs, miniature.labels)
    assert (result.name, calls) == ("own", [num_examples])
    assert result.passes == pytest.approx(41.0)
    assert losses(result)["own"] == pytest.approx(0.01)


def test_temperatures_are_tried_where_the_posterior_cannot_be_made(layer_normed: object) -> None:
    """A loss that is counted and not differentiated, or a budget that the posterior would exceed."""
    observation = transmit(layer_normed.model, wnr_db=WNR_DB, seed=0)
    data = (layer_normed.inputs, layer_normed.model(layer_normed.inputs).argmax(1))
    counted = {"loss": lambda outputs, labels: (outputs.argmax(1) != labels).float()}
    result = auto(observation, *data, **counted, max_passes=400)
    failed = {one.name: one.failed for one in result.details["tried"]}
    assert failed["posterior"].startswith("failed: the loss has no gradient")
    assert {"mmse", "mmse_layerwise", "mmse_pb"} <= losses(result).keys()
    assert {"mmse", "mmse_layerwise", "mmse_pb"} <= losses(auto(observation, *data, max_passes=60)).keys()
    assert not {"mmse", "mmse_layerwise", "mmse_pb"} & losses(auto(observation, *data)).keys()


def test_the_expected_accuracy_comes_with_a_lower_limit_and_a_table(repaired: tuple) -> None:
    _, result = repaired
    assert result.details["accuracy_at_least"] == at_least(result.details["expected_accuracy"], 60)
    assert f"* {result.name}" in str(result)
    assert f"expected accuracy {result.details['accuracy_at_least']:.1%} or more (97.5 % sure" in str(result)


def test_the_expected_accuracy_is_not_the_winners_own(miniature: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two candidates is right on one half and wrong on the other: whoever wins was lucky."""
    wrong = copy.deepcopy(miniature.model)
    with torch.no_grad():
        wrong[-1].weight.copy_(wrong[-1].weight.roll(1, 0))
        wrong[-1].bias.copy_(wrong[-1].bias.roll(1, 0))

    def lucky_on(half: int, name: str) -> Repair:
        calls = iter([miniature.model, wrong] if half == 0 else [wrong, miniature.model])
        return toy(name, lambda *_: Repaired(next(calls, miniature.model), name))

    only(monkeypatch, REPAIRS["ml"], lucky_on(0, "first"), lucky_on(1, "second"))
    result = auto(wrong, miniature.inputs, miniature.labels, noise_variance=0.01)
    assert result.name in ("first", "second")
    accuracies = {one.name: one.accuracy for one in result.details["tried"]}
    assert accuracies[result.name] == pytest.approx(0.5, abs=0.1)
    assert result.details["expected_accuracy"] < 0.2


def test_the_network_given_stays_as_it_is(repaired: tuple, miniature: object) -> None:
    observation, result = repaired
    again = transmit(miniature.model, wnr_db=WNR_DB, seed=0).received.state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in observation.received.state_dict().items())
    shared = {tensor.data_ptr() for tensor in observation.received.state_dict().values()}
    assert shared.isdisjoint(tensor.data_ptr() for tensor in result.model.state_dict().values())


@pytest.mark.parametrize("has", ["nothing", "inputs", "labels"])
def test_without_noise_the_network_comes_back_bit_for_bit(miniature: object, snapshot: Snapshot, has: str) -> None:
    data = {"inputs": miniature.inputs} if has != "nothing" else {}
    if has == "labels":
        data["labels"] = miniature.labels
    result = auto(miniature.model, noise_variance=0.0, **data)
    assert result.name == "ml"
    assert snapshot(result.model.state_dict()) == snapshot(miniature.model.state_dict())
    assert result.model is not miniature.model
    assert (result.details["expected_accuracy"] is not None) == (has == "labels")


def test_with_nothing_the_weights_stay_as_received(miniature: object, layer_normed: object) -> None:
    for network in (miniature.model, layer_normed.model):
        result = auto(network, noise_variance=0.01)
        assert (result.name, result.details["expected_accuracy"], result.passes) == ("ml", None, 0)
        assert "some inputs, without labels, may allow more" in result.details["notes"][0]
        assert all(torch.equal(one, network.state_dict()[name]) for name, one in result.model.state_dict().items())


def test_with_inputs_batch_norm_is_calibrated(miniature: object, layer_normed: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(observation, miniature.inputs)
    by_hand = quietnn.calibrate(observation, miniature.inputs).model
    assert (result.name, result.passes) == ("calibrated", 1)
    assert torch.equal(result.model[1].running_var, by_hand[1].running_var)


def test_with_inputs_layers_that_normalise_each_input_have_their_energy_restored(layer_normed: object) -> None:
    model, inputs = layer_normed.model, layer_normed.inputs
    result = auto(model, inputs, noise_variance=0.01)
    by_hand = quietnn.repair(model, inputs, noise_variance=0.01, method="energy").model
    assert (result.name, result.passes) == ("energy", 1)
    assert torch.equal(result.model[0].weight, by_hand[0].weight)
    short = auto(model, inputs, noise_variance=0.01, balanced_classes=True, max_passes=30)
    assert (short.name, short.passes) == ("energy_balanced", 2)
    assert torch.equal(short.model[0].weight, by_hand[0].weight)
    assert not torch.equal(short.model[3].bias, by_hand[3].bias)  # the head is centred


def test_a_normalisation_that_is_never_called_starts_no_training(layer_normed: object) -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(8, 3), nn.LayerNorm(3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(inputs)

    trained = quietnn.self_train(Unused(), layer_normed.inputs, noise_variance=0.01)
    assert trained.details["start"] == "received"


def test_a_head_that_cannot_be_centred_does_not_cost_the_repair(layer_normed: object) -> None:
    headless = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3, bias=False))
    options = {"noise_variance": 0.01, "balanced_classes": True, "max_passes": 5}
    assert auto(headless, layer_normed.inputs, **options).name == "energy_balanced"
    per_token = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    assert auto(per_token, torch.rand(20, 5, 4), **options).name == "energy_balanced"
    with pytest.raises(InvalidConfig, match=r"shape \(20, 5, 3\); balanced_classes needs"):
        quietnn.denoise_branches(per_token, torch.rand(20, 5, 4), noise_variance=0.01, balanced_classes=True)


def test_weights_that_overflow_stay_as_received(layer_normed: object) -> None:
    broken = copy.deepcopy(layer_normed.model)
    with torch.no_grad():
        broken[0].weight.fill_(3e38)
    result = auto(broken, layer_normed.inputs, noise_variance=0.01, balanced_classes=True, max_passes=5)
    assert result.name == "ml"
    failed = {one.name: one.failed for one in result.details["tried"]}
    assert failed["energy_balanced"].startswith("failed: what enters a normalisation is not finite")


def test_a_normalisation_of_ones_own_is_believed() -> None:
    class Mine(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs / inputs.norm(dim=1, keepdim=True)

    model = nn.Sequential(nn.Linear(4, 8), Mine(), nn.Linear(8, 3))
    types = (*quietnn.weights.NORMALISATION_TYPES, Mine)
    assert auto(model, torch.rand(20, 4), noise_variance=0.01).name == "ml"
    assert auto(observe(model, noise_variance=0.01, normalisation=types), torch.rand(20, 4)).name == "energy"
    labels = torch.arange(20) % 3
    judged = auto(observe(model, noise_variance=0.01, normalisation=types), torch.rand(20, 4), labels, max_passes=5)
    assert "branches" in losses(judged)


def test_balanced_classes_allow_training_without_labels(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(observation, miniature.inputs, balanced_classes=True, seed=3)
    by_hand = quietnn.self_train(observation, miniature.inputs, seed=3)
    assert (result.name, result.passes) == ("self_trained", by_hand.passes)
    assert torch.equal(result.model[0].weight, by_hand.model[0].weight)
    assert [one.name for one in result.details["tried"]] == ["ml", "self_trained"]
    short = auto(observation, miniature.inputs, balanced_classes=True, max_passes=30)
    assert (short.name, short.passes) == ("calibrated", 1)
    none = auto(miniature.model, miniature.inputs, noise_variance=0.0, balanced_classes=True)
    assert (none.name, none.passes) == ("ml", 0)


def test_a_network_that_normalises_each_input_is_not_trained_without_labels(layer_normed: object) -> None:
    result = auto(layer_normed.model, layer_normed.inputs, noise_variance=0.01, balanced_classes=True)
    assert result.name == "energy_balanced"
    assert "self_trained" not in {one.name for one in result.details["tried"]}


def test_training_without_labels_that_fails_falls_back_to_calibration() -> None:
    regression = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).eval()
    result = auto(regression, torch.rand(20, 4), noise_variance=0.01, balanced_classes=True)
    assert result.name == "calibrated"
    failed = {one.name: one.failed for one in result.details["tried"]}
    assert failed["self_trained"].startswith("failed: the network's outputs have shape")


def test_calibration_that_fails_leaves_the_weights_as_they_came(miniature: object) -> None:
    broken = transmit(miniature.model, wnr_db=WNR_DB, seed=0).received
    with torch.no_grad():
        broken[0].weight.fill_(3e38)
    result = auto(broken, miniature.inputs, noise_variance=0.01)
    assert result.name == "ml"
    assert result.details["tried"][-1].failed.startswith("failed: what enters 1 is not finite")


def test_batch_norms_that_are_all_shared_are_said_to_be_left_alone(snapshot: Snapshot) -> None:
    norm = nn.BatchNorm2d(4)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), norm, nn.Conv2d(4, 4, 1), norm, nn.Flatten(), nn.Linear(64, 3)).eval()
    result = auto(model, torch.rand(20, 3, 4, 4), noise_variance=0.01)
    assert result.name == "ml"
    assert {one.failed for one in result.details["tried"][1:]} == {"changed nothing"}
    assert snapshot(result.model.state_dict()) == snapshot(model.state_dict())


def test_no_pass_is_spent_where_none_is_allowed(miniature: object) -> None:
    result = auto(miniature.model, miniature.inputs, noise_variance=0.01, max_passes=0)
    assert (result.name, result.passes) == ("ml", 0)


@pytest.mark.parametrize("kind", [InvalidWeights, RuntimeError])
def test_a_candidate_that_fails_is_recorded_and_passed_over(
    miniature: object, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def gives_up(*_: object) -> Repaired:
        raise kind("what enters bn is not finite")

    only(monkeypatch, REPAIRS["ml"], REPAIRS["calibrated"], toy("hopeless", gives_up, 1))
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(observation, miniature.inputs, miniature.labels)
    assert result.details["tried"][-1].failed == "failed: what enters bn is not finite"
    assert result.name in ("ml", "calibrated")


def test_a_winner_that_fails_on_all_examples_gives_way_to_the_next(
    miniature: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def works_on_halves(observation: Observation, evidence: Evidence, *_: object) -> Repaired:
        if len(evidence) == len(miniature.labels):
            raise QuietnnError("too many")
        return Repaired(miniature.model, "perfect", 1.0)  # the clean network: it wins

    only(monkeypatch, REPAIRS["ml"], toy("perfect", works_on_halves, 1))
    observation = transmit(miniature.model, wnr_db=-6.0, seed=0)
    result = auto(observation, miniature.inputs, miniature.labels)
    assert losses(result)["perfect"] < losses(result)["ml"]
    assert result.name == "ml"
    assert "perfect was the best, and failed on all examples: too many" in result.details["notes"]


def test_a_small_budget_leaves_the_expensive_ones_out(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(
        observation,
        miniature.inputs,
        miniature.labels,
        max_passes=30,
    )
    reasons = {one.name: one.failed for one in result.details["tried"] if one.failed}
    assert set(reasons) == {"posterior"}
    assert "not tried" in reasons["posterior"]
    assert result.passes <= 30


def test_an_unknown_noise_power_is_estimated(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=-3.0, seed=0)
    result = auto(observation.received, miniature.inputs)
    assert result.name == "calibrated"
    assert "estimated, not told" in result.details["notes"][0]
    estimate = quietnn.noise_power_from_batch_norm(observation.received, miniature.inputs)
    by_hand = quietnn.calibrate(observation.received, miniature.inputs, noise_variance=estimate.variance).model
    assert torch.equal(result.model[1].running_var, by_hand[1].running_var)
    labelled = {"labels": miniature.labels, "max_passes": 30}
    judged = auto(observation.received, miniature.inputs, **labelled)
    told = auto(observation.received, miniature.inputs, noise_variance=estimate.variance, **labelled)
    assert losses(judged) == losses(told)


@pytest.mark.parametrize("has_labels", [False, True])
def test_noise_too_weak_to_be_estimated_is_not_called_none(miniature: object, has_labels: bool) -> None:
    inputs = 0.5 * miniature.inputs  # they vary less than the sender's, as if noise were below zero
    labels = miniature.labels if has_labels else None
    estimate = quietnn.noise_power_from_batch_norm(miniature.model, inputs)
    assert estimate.variance == 0
    result = auto(miniature.model, inputs, labels)
    assert result.name == "ml"
    (note,) = result.details["notes"]
    assert f"0 ± {estimate.standard_error:.2g}" in note
    assert "too weak to be estimated" in note


def test_a_loss_of_ones_own_has_no_accuracy(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    targets = miniature.model(miniature.inputs).detach()
    result = auto(
        observation,
        miniature.inputs,
        targets,
        loss=lambda outputs, wanted: (outputs - wanted).square().mean(1),
        max_passes=30,
    )
    assert (result.details["expected_accuracy"], result.details["accuracy_at_least"]) == (None, None)
    assert losses(result)[result.name] <= losses(result)["ml"]
    assert result.details["tried"][0].accuracy is None
    assert "accuracy" not in str(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": torch.zeros(60, dtype=torch.int64)}, "labels came without inputs"),
        ({"noise_variance": None}, "only inputs of a network with BatchNorm tell it"),
        ({"noise_variance": -1.0}, "noise_variance is -1.0"),
        (
            {"inputs": torch.zeros(60, 8), "labels": torch.zeros(5, dtype=torch.int64)},
            "60 inputs do not go with labels of shape \\(5,\\)",
        ),
        ({"inputs": torch.zeros(4, 8), "labels": torch.zeros(4, dtype=torch.int64)}, "4 labelled examples are too few"),
        (
            {
                "inputs": torch.zeros(60, 8),
                "labels": torch.zeros(60, dtype=torch.int64),
                "loss": nn.functional.cross_entropy,
            },
            "return one loss for each",
        ),
    ],
)
def test_bad_input(miniature: object, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(QuietnnError, match=message):
        auto(miniature.model, **{"noise_variance": 0.01, **arguments})


def test_train_mode_is_restored(miniature: object) -> None:
    model = transmit(miniature.model, wnr_db=WNR_DB, seed=0).received.train()
    Evidence(miniature.inputs, miniature.labels).judge(model)
    assert all(layer.training for layer in model.modules())


def test_a_known_gain_is_undone_in_all_that_is_judged_and_returned(miniature: object) -> None:
    model = miniature.model
    thrice = with_weights(model, {name: 3 * tensor for name, tensor in noisy_weights(model).items()})
    observation = Observation(thrice, 1e-9, gain=3.0)
    for labels in (None, miniature.labels):
        result = auto(observation, miniature.inputs, labels, max_passes=0)
        assert result.name == "ml"
        torch.testing.assert_close(result.model[0].weight, model[0].weight)
    right = Evidence(miniature.inputs, miniature.labels).score_of(model).accuracy
    assert result.details["expected_accuracy"] == pytest.approx(right)


def test_the_score_of_a_network_needs_no_class_numbers(layer_normed: object) -> None:
    observation = transmit(layer_normed.model, wnr_db=WNR_DB, seed=0)
    targets = layer_normed.model(layer_normed.inputs).detach()
    loss = lambda outputs, wanted: (outputs - wanted).square().mean(1)  # noqa: E731
    result = auto(observation, layer_normed.inputs, targets, loss=loss)
    assert set(losses(result)) >= {"ml", "branches", "posterior"}
    assert losses(result)[result.name] < losses(result)["ml"]


def test_labels_without_inputs_is_a_configuration_error() -> None:
    with pytest.raises(InvalidConfig):
        auto(nn.Linear(2, 2), noise_variance=0.1, labels=torch.zeros(3))
