"""`auto` with nothing, with inputs and with labels."""

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.automatic import auto as module
from quietnn.automatic.auto import auto
from quietnn.automatic.candidates import CANDIDATES, Candidate, Made, Received, scale_is_undone
from quietnn.automatic.labelled import Labelled
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError

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
    assert len(names) == len(CANDIDATES) - 1  # it has no convolution, and so no structured prior
    assert losses(result)[result.chosen] <= losses(result)["ml"]
    assert result.num_passes >= sum(one.num_passes for one in result.tried) > 0


def test_the_expected_accuracy_comes_with_an_interval_and_a_table(repaired: tuple) -> None:
    _, result = repaired
    low, high = result.interval
    assert 0 <= low < result.expected_accuracy <= high <= 1
    assert f"* {result.chosen}" in str(result)
    assert "95 % interval" in str(result)


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
    assert auto(layer_normed.model, noise_variance=0.01, inputs=layer_normed.inputs).chosen == "mmse"


def test_calibration_that_fails_leaves_the_weights_as_they_came(miniature: object) -> None:
    broken = transmit(miniature.model, wnr_db=WNR_DB, seed=0).received
    with torch.no_grad():
        broken[0].weight.fill_(3e38)
    result = auto(broken, noise_variance=0.01, inputs=miniature.inputs)
    assert result.chosen == "ml"
    assert "calibration failed: what enters 1 is not finite" in result.notes[0]


def test_a_candidate_that_fails_is_recorded_and_passed_over(miniature: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(received: Received) -> Made:
        raise InvalidWeights("what enters bn is not finite")

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
    assert (result.expected_accuracy, result.interval) == (None, None)
    assert losses(result)[result.chosen] <= losses(result)["ml"]
    assert math.isnan(result.tried[0].accuracy)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": torch.zeros(60, dtype=torch.int64)}, "labels came without inputs"),
        ({"noise_variance": None}, "nothing to estimate it from"),
        ({"noise_variance": -1.0}, "noise_variance is -1.0"),
        ({"inputs": torch.zeros(60, 8), "labels": torch.zeros(5, dtype=torch.int64)}, "60 inputs do not go with 5"),
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
