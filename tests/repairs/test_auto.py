"""`auto` with nothing, with inputs and with labels."""

import copy
import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.repairs import auto as module
from quietnn.repairs.auto import auto
from quietnn.repairs.calibrated_starts import scale_is_undone
from quietnn.repairs.candidates import CANDIDATES, Candidate, Made, Received
from quietnn.repairs.choice import at_least
from quietnn.repairs.labelled import Labelled

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]
WNR_DB = 4.0


@pytest.fixture(scope="module")
def repaired(miniature: object) -> "tuple[quietnn.Observation, quietnn.AutoResult]":
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(
        observation.received,
        noise_variance=observation.noise_variance,
        inputs=miniature.inputs,
        labels=miniature.labels,
    )
    return observation, result


def losses(result: "quietnn.AutoResult") -> dict[str, float]:
    return {one.name: one.loss for one in result.tried if one.loss is not None}


def test_every_candidate_is_tried_and_none_worse_than_ml_wins(repaired: tuple, miniature: object) -> None:
    _, result = repaired
    names = [candidate.name for candidate in CANDIDATES if candidate.applies(miniature.model)]
    assert [one.name for one in result.tried] == names
    assert len(names) == len(CANDIDATES) - 2  # no convolution, so no structured prior; BatchNorm, so no branches
    assert losses(result)[result.chosen] <= losses(result)["ml"]
    assert result.num_passes >= sum(one.num_passes for one in result.tried) > 0


def test_the_expected_accuracy_comes_with_a_lower_limit_and_a_table(repaired: tuple) -> None:
    _, result = repaired
    assert result.accuracy_at_least == at_least(result.expected_accuracy, 60)
    assert f"* {result.chosen}" in str(result)
    assert f"expected accuracy {result.accuracy_at_least:.1%} or more (97.5 % sure" in str(result)


def test_the_expected_accuracy_is_not_the_winners_own(miniature: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two candidates is right on one half and wrong on the other: whoever wins was lucky."""
    wrong = copy.deepcopy(miniature.model)
    with torch.no_grad():
        wrong[-1].weight.copy_(wrong[-1].weight.roll(1, 0))
        wrong[-1].bias.copy_(wrong[-1].bias.roll(1, 0))

    def lucky_on(half: int) -> Callable[[Received], Made]:
        calls = iter([miniature.model, wrong] if half == 0 else [wrong, miniature.model])
        return lambda received: Made(next(calls, miniature.model), 0.0)

    few = (CANDIDATES[0], Candidate("first", lucky_on(0), 0), Candidate("second", lucky_on(1), 0))
    monkeypatch.setattr(module, "CANDIDATES", few)
    result = auto(wrong, noise_variance=0.01, inputs=miniature.inputs, labels=miniature.labels)
    assert result.chosen in ("first", "second")
    assert next(one.accuracy for one in result.tried if one.name == result.chosen) == pytest.approx(0.5, abs=0.1)
    assert result.expected_accuracy < 0.2


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
    assert result.chosen == "ml"
    assert snapshot(result.model.state_dict()) == snapshot(miniature.model.state_dict())
    assert result.model is not miniature.model
    assert (result.expected_accuracy is not None) == (has == "labels")


def test_with_nothing_it_goes_by_the_kind_of_network(miniature: object, layer_normed: object) -> None:
    with_batch_norm = auto(miniature.model, noise_variance=0.01)
    assert with_batch_norm.chosen == "ml"
    assert "calibration" in with_batch_norm.notes[0]
    with_layer_norm = auto(layer_normed.model, noise_variance=0.01)
    assert with_layer_norm.chosen == "mmse"
    by_hand = quietnn.denoise(layer_normed.model, noise_variance=0.01)
    assert torch.equal(with_layer_norm.model[0].weight, by_hand[0].weight)
    assert (with_layer_norm.expected_accuracy, with_layer_norm.num_passes) == (None, 0)


def test_with_inputs_batch_norm_is_calibrated(miniature: object, layer_normed: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(observation.received, noise_variance=observation.noise_variance, inputs=miniature.inputs)
    by_hand = quietnn.calibrate(observation.received, miniature.inputs, noise_variance=observation.noise_variance)
    assert (result.chosen, result.num_passes) == ("calibrated", 1)
    assert torch.equal(result.model[1].running_var, by_hand[1].running_var)


def test_with_inputs_layers_that_normalise_each_input_have_their_branches_denoised(layer_normed: object) -> None:
    model, inputs = layer_normed.model, layer_normed.inputs
    result = auto(model, noise_variance=0.01, inputs=inputs)
    by_hand = quietnn.denoise_branches(model, inputs, noise_variance=0.01)
    assert (result.chosen, result.num_passes) == ("branches", 0)
    assert torch.equal(result.model[0].weight, by_hand[0].weight)
    short = auto(model, noise_variance=0.01, inputs=inputs, balanced_classes=True, max_passes=30)
    centred = quietnn.denoise_branches(model, inputs, noise_variance=0.01, balanced_classes=True)
    assert (short.chosen, short.num_passes) == ("branches", 1)
    assert torch.equal(short.model[3].bias, centred[3].bias)


def test_a_normalisation_that_is_never_called_leaves_plain_mmse(layer_normed: object) -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(8, 3), nn.LayerNorm(3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(inputs)

    assert auto(Unused(), noise_variance=0.01, inputs=layer_normed.inputs).chosen == "mmse"
    trained = quietnn.self_train(Unused(), layer_normed.inputs, noise_variance=0.01)
    assert trained.start == "received"


def test_a_head_that_cannot_be_centred_does_not_cost_the_repair(layer_normed: object) -> None:
    headless = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3, bias=False))
    options = {"noise_variance": 0.01, "balanced_classes": True, "max_passes": 5}
    assert auto(headless, inputs=layer_normed.inputs, **options).chosen == "branches"
    per_token = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    assert auto(per_token, inputs=torch.rand(20, 5, 4), **options).chosen == "branches"
    with pytest.raises(InvalidConfig, match=r"shape \(20, 5, 3\); balanced_classes needs"):
        quietnn.denoise_branches(per_token, torch.rand(20, 5, 4), noise_variance=0.01, balanced_classes=True)


def test_weights_that_overflow_in_the_branches_stay_as_they_came(layer_normed: object) -> None:
    broken = copy.deepcopy(layer_normed.model)
    with torch.no_grad():
        broken[3].weight.fill_(3e38)
    result = auto(broken, noise_variance=0.01, inputs=layer_normed.inputs, balanced_classes=True, max_passes=5)
    assert result.chosen == "ml"
    assert result.notes[0].startswith("MMSE of branches failed: the outputs are not finite")


def test_a_normalisation_of_ones_own_is_believed() -> None:
    class Mine(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs / inputs.norm(dim=1, keepdim=True)

    model = nn.Sequential(nn.Linear(4, 8), Mine(), nn.Linear(8, 3))
    types = (*quietnn.weights.NORMALISATION_TYPES, Mine)
    assert auto(model, noise_variance=0.01, inputs=torch.rand(20, 4)).chosen == "ml"
    assert auto(model, noise_variance=0.01, inputs=torch.rand(20, 4), normalisation=types).chosen == "branches"


def test_balanced_classes_allow_training_without_labels(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    noise = observation.noise_variance
    result = auto(observation.received, noise_variance=noise, inputs=miniature.inputs, balanced_classes=True, seed=3)
    by_hand = quietnn.self_train(observation.received, miniature.inputs, noise_variance=noise, seed=3)
    assert (result.chosen, result.num_passes) == ("self_trained", by_hand.num_passes)
    assert torch.equal(result.model[0].weight, by_hand.model[0].weight)
    assert [one.name for one in result.tried] == ["ml", "calibrated", "self_trained"]
    short = auto(
        observation.received, noise_variance=noise, inputs=miniature.inputs, balanced_classes=True, max_passes=30
    )
    assert (short.chosen, short.num_passes) == ("calibrated", 1)
    none = auto(miniature.model, noise_variance=0.0, inputs=miniature.inputs, balanced_classes=True)
    assert (none.chosen, none.num_passes) == ("ml", 0)


def test_training_without_labels_that_fails_falls_back_to_calibration() -> None:
    regression = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).eval()
    result = auto(regression, noise_variance=0.01, inputs=torch.rand(20, 4), balanced_classes=True)
    assert result.chosen == "calibrated"
    assert result.notes[0].startswith("self-training failed: the network's outputs have shape")


def test_calibration_that_fails_leaves_the_weights_as_they_came(miniature: object) -> None:
    broken = transmit(miniature.model, wnr_db=WNR_DB, seed=0).received
    with torch.no_grad():
        broken[0].weight.fill_(3e38)
    result = auto(broken, noise_variance=0.01, inputs=miniature.inputs)
    assert result.chosen == "ml"
    assert "calibration failed: what enters 1 is not finite" in result.notes[0]


def test_batch_norms_that_are_all_shared_are_said_to_be_left_alone(snapshot: Snapshot) -> None:
    norm = nn.BatchNorm2d(4)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), norm, nn.Conv2d(4, 4, 1), norm, nn.Flatten(), nn.Linear(64, 3)).eval()
    result = auto(model, noise_variance=0.01, inputs=torch.rand(20, 3, 4, 4))
    assert result.chosen == "ml"
    assert "called more than once" in result.notes[0]
    assert snapshot(result.model.state_dict()) == snapshot(model.state_dict())


def test_no_pass_is_spent_where_none_is_allowed(miniature: object) -> None:
    result = auto(miniature.model, noise_variance=0.01, inputs=miniature.inputs, max_passes=0)
    assert (result.chosen, result.num_passes) == ("ml", 0)


@pytest.mark.parametrize("kind", [InvalidWeights, RuntimeError])
def test_a_candidate_that_fails_is_recorded_and_passed_over(
    miniature: object, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def gives_up(received: Received) -> Made:
        raise kind("what enters bn is not finite")

    few = (CANDIDATES[0], CANDIDATES[3], Candidate("posterior", gives_up, 1))
    monkeypatch.setattr(module, "CANDIDATES", few)
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(
        observation.received,
        noise_variance=observation.noise_variance,
        inputs=miniature.inputs,
        labels=miniature.labels,
    )
    assert result.tried[-1].failed == "failed: what enters bn is not finite"
    assert result.chosen in ("ml", "calibrated")


def test_a_winner_that_fails_on_all_examples_gives_way_to_the_next(
    miniature: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def works_on_halves(received: Received) -> Made:
        if len(received.examples) == len(miniature.labels):
            raise QuietnnError("too many")
        return Made(miniature.model, 1.0)  # the clean network: it wins

    few = (CANDIDATES[0], Candidate("perfect", works_on_halves, 1))
    monkeypatch.setattr(module, "CANDIDATES", few)
    observation = transmit(miniature.model, wnr_db=-6.0, seed=0)
    result = auto(
        observation.received,
        noise_variance=observation.noise_variance,
        inputs=miniature.inputs,
        labels=miniature.labels,
    )
    assert losses(result)["perfect"] < losses(result)["ml"]
    assert result.chosen == "ml"
    assert "perfect was the best, and failed on all examples: too many" in result.notes


def test_a_small_budget_leaves_the_expensive_ones_out(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    result = auto(
        observation.received,
        noise_variance=observation.noise_variance,
        inputs=miniature.inputs,
        labels=miniature.labels,
        max_passes=30,
    )
    reasons = {one.name: one.failed for one in result.tried if one.failed}
    assert set(reasons) == {"mmse_pb_gradient", "posterior"}
    assert "not tried" in reasons["posterior"]
    assert result.num_passes <= 30


def test_an_unknown_noise_power_is_estimated(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=-3.0, seed=0)
    result = auto(observation.received, noise_variance=None, inputs=miniature.inputs)
    assert result.chosen == "calibrated"
    assert "estimated, not told" in result.notes[0]
    estimate = quietnn.noise_power_from_batch_norm(observation.received, miniature.inputs)
    by_hand = quietnn.calibrate(observation.received, miniature.inputs, noise_variance=estimate.variance)
    assert torch.equal(result.model[1].running_var, by_hand[1].running_var)
    labelled = {"labels": miniature.labels, "max_passes": 30}
    judged = auto(observation.received, noise_variance=None, inputs=miniature.inputs, **labelled)
    told = auto(observation.received, noise_variance=estimate.variance, inputs=miniature.inputs, **labelled)
    assert losses(judged) == losses(told)


@pytest.mark.parametrize("has_labels", [False, True])
def test_noise_too_weak_to_be_estimated_is_not_called_none(miniature: object, has_labels: bool) -> None:
    inputs = 0.5 * miniature.inputs  # they vary less than the sender's, as if noise were below zero
    labels = miniature.labels if has_labels else None
    estimate = quietnn.noise_power_from_batch_norm(miniature.model, inputs)
    assert estimate.variance == 0
    result = auto(miniature.model, noise_variance=None, inputs=inputs, labels=labels)
    assert result.chosen == "ml"
    (note,) = result.notes
    assert f"0 ± {estimate.standard_error:.2g}" in note
    assert "too weak to be estimated" in note


def test_a_loss_of_ones_own_has_no_accuracy(miniature: object) -> None:
    observation = transmit(miniature.model, wnr_db=WNR_DB, seed=0)
    targets = miniature.model(miniature.inputs).detach()
    result = auto(
        observation.received,
        noise_variance=observation.noise_variance,
        inputs=miniature.inputs,
        labels=targets,
        loss=lambda outputs, wanted: (outputs - wanted).square().mean(1),
        max_passes=30,
    )
    assert (result.expected_accuracy, result.accuracy_at_least) == (None, None)
    assert losses(result)[result.chosen] <= losses(result)["ml"]
    assert math.isnan(result.tried[0].accuracy)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": torch.zeros(60, dtype=torch.int64)}, "labels came without inputs"),
        ({"noise_variance": None}, "nothing to estimate it from"),
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
    Labelled(miniature.inputs, miniature.labels).judge(model)
    assert all(layer.training for layer in model.modules())


@pytest.mark.parametrize(
    ("layers", "undone"),
    [
        ([nn.LayerNorm(4)], True),
        ([nn.GroupNorm(2, 4)], True),
        ([nn.LayerNorm(4), nn.BatchNorm1d(4)], False),
        ([nn.InstanceNorm1d(4, track_running_stats=True)], False),
        ([nn.ReLU()], False),
    ],
)
def test_where_a_common_scale_is_undone(layers: list[nn.Module], undone: bool) -> None:
    assert scale_is_undone(nn.Sequential(nn.Linear(4, 4), *layers)) == undone


def test_labels_without_inputs_is_a_configuration_error() -> None:
    with pytest.raises(InvalidConfig):
        auto(nn.Linear(2, 2), noise_variance=0.1, labels=torch.zeros(3))
