"""A federation without noise is FedAvg; with it, everything follows from the seed."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from quietnn.channels.randomness import generator_for
from quietnn.federated.devices import Diverged
from quietnn.federated.estimators import Affine
from quietnn.federated.rounds import Federation, ServerState, participants, run_round
from quietnn.federated.schemes import Carried
from quietnn.federated.tasks import FederatedTask
from quietnn.repairs.affine import MMSE

Make = Callable[..., Federation]


def run(federation: Federation, task: FederatedTask, num_rounds: int = 2) -> dict[str, Tensor]:
    model = task.fresh_model(0)
    server = ServerState.initial(model)
    for _ in range(num_rounds):
        server, _ = run_round(federation, model, server)
    return server.state


def plain_fedavg(federation: Federation, task: FederatedTask, num_rounds: int = 2) -> dict[str, Tensor]:
    """FedAvg as one would write it by hand: average the trained state dicts."""
    recipe = federation.settings
    state = task.fresh_model(0).state_dict()
    for number in range(num_rounds):
        trained = []
        for device in participants(federation.devices, recipe.num_active, round_number=number, seed=0):
            data, model = federation.devices[device], task.fresh_model(0)
            model.load_state_dict(copy.deepcopy(state))
            optimizer = torch.optim.SGD(
                model.parameters(), lr=recipe.learning_rate_at(number), momentum=0.9, weight_decay=5e-4
            )
            order = torch.randperm(len(data), generator=generator_for(0, "device", device, number))
            for batch in order.split(recipe.batch_size):
                optimizer.zero_grad()
                functional.cross_entropy(model(data.inputs[batch]), data.labels[batch]).backward()
                optimizer.step()
            trained.append(model.state_dict())
        state = {
            name: torch.stack([one[name].double() for one in trained]).mean(0).to(tensor.dtype)
            for name, tensor in state.items()
        }
    return state


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference relative to the largest entry of its tensor."""
    assert one.keys() == other.keys()
    return max(
        float(
            (one[name].double() - other[name].double()).abs().max() / other[name].double().abs().max().clamp_min(1e-30)
        )
        for name in one
    )


def test_noiseless_federation_equals_plain_fedavg(small_federation: Make, digits: FederatedTask) -> None:
    federation = small_federation()
    assert distance(run(federation, digits), plain_fedavg(federation, digits)) < 1e-6


def test_a_wnr_of_200_db_is_no_noise(small_federation: Make, digits: FederatedTask) -> None:
    assert distance(run(small_federation(200.0), digits), run(small_federation(), digits)) < 1e-6


def test_without_noise_every_estimator_of_the_family_is_fedavg(small_federation: Make, digits: FederatedTask) -> None:
    clean = run(small_federation(), digits)
    for estimator in (Affine(MMSE), Affine(MMSE, "layerwise"), Carried()):
        assert distance(run(small_federation(estimator=estimator), digits), clean) < 1e-6


def test_noise_changes_the_noisy_parameters_by_seed(small_federation: Make, digits: FederatedTask) -> None:
    one, again = (run(small_federation(0.0), digits, 1) for _ in range(2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    clean = run(small_federation(), digits, 1)
    assert not torch.equal(one["fc.weight"], clean["fc.weight"])
    normalisation = [name for name in one if "bn" in name or "downsample.1" in name]
    assert normalisation
    assert all(torch.equal(one[name], clean[name]) for name in normalisation)


def test_participants_change_from_round_to_round_and_all_take_part(small_federation: Make) -> None:
    devices = small_federation().devices
    rounds = [participants(devices, 3, round_number=number, seed=0) for number in range(30)]
    assert {device for active in rounds for device in active} == set(devices)
    assert len(set(rounds)) > 10
    assert all(len(set(active)) == 3 and list(active) == sorted(active) for active in rounds)


def with_inputs_times(federation: Federation, factor: float, devices: tuple[int, ...]) -> Federation:
    """The same federation in which the data of some devices are broken."""
    broken = {
        device: replace(data, inputs=data.inputs * factor) if device in devices else data
        for device, data in federation.devices.items()
    }
    return replace(federation, devices=broken, settings=replace(federation.settings, num_active=4))


def test_a_device_whose_update_is_far_too_large_is_left_out_and_named(
    small_federation: Make, digits: FederatedTask
) -> None:
    federation = with_inputs_times(small_federation(), 1.0, ())
    bad = participants(federation.devices, 4, round_number=0, seed=0)[1]
    model = digits.fresh_model(0)
    for factor, reason in ((1e6, "times the median of the others"), (math.nan, f"the loss of device {bad} became nan")):
        broken = with_inputs_times(federation, factor, (bad,))
        server, record = run_round(broken, model, ServerState.initial(digits.fresh_model(0)))
        assert record["missing"] == [bad]
        assert bad not in record["devices"]
        assert record["num_devices"] == len(record["devices"]) == 3
        assert reason in record["reasons"][0]
        assert all(bool(tensor.isfinite().all()) for tensor in server.state.values())
    large = with_inputs_times(federation, 1e6, (bad,))
    unbounded = replace(large, settings=replace(large.settings, norm_bound=math.inf))
    _, record = run_round(unbounded, model, ServerState.initial(digits.fresh_model(0)))
    assert bad in record["devices"]
    assert "missing" not in record


def test_a_federation_most_of_whose_devices_diverge_ends(small_federation: Make, digits: FederatedTask) -> None:
    federation = small_federation()
    chosen = participants(federation.devices, 4, round_number=0, seed=0)
    broken = with_inputs_times(federation, math.nan, chosen[:3])
    with pytest.raises(Diverged, match="3 of 4 devices left the finite numbers"):
        run_round(broken, digits.fresh_model(0), ServerState.initial(digits.fresh_model(0)))
