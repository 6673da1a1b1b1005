"""What a device does in a round."""

import pytest
import torch
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.federated.devices import Diverged, train_device
from quietnn.federated.partition import even
from quietnn.federated.settings import FederationSettings
from quietnn.federated.tasks import FederatedTask


def test_a_device_whose_loss_is_not_finite_says_where(digits: FederatedTask) -> None:
    model = digits.fresh_model(0)
    nn.init.constant_(model.get_parameter("fc.bias"), float("nan"))
    data = digits.devices(even(digits.labels, 10, seed=0))[4]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recipe = FederationSettings(num_rounds=9, num_epochs=1, batch_size=50)
    with pytest.raises(Diverged, match="device 4 became nan in round 7, local epoch 1"):
        train_device(model, state, data, recipe, device=4, round_number=6, seed=0)


def test_a_device_trains_the_same_whatever_ran_before(digits: FederatedTask) -> None:
    model = digits.fresh_model(0)
    data = digits.devices(even(digits.labels, 10, seed=0))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recipe = FederationSettings(num_rounds=9, num_epochs=1, batch_size=33, crop_padding=1)
    first, _ = train_device(model, state, data[1], recipe, device=1, round_number=2, seed=5)
    train_device(model, state, data[2], recipe, device=2, round_number=2, seed=5)
    again, _ = train_device(model, state, data[1], recipe, device=1, round_number=2, seed=5)
    assert all(torch.equal(first[name], again[name]) for name in state)


def test_the_learning_rate_falls_along_half_a_cosine() -> None:
    recipe = FederationSettings(num_rounds=10, learning_rate=0.2)
    rates = [recipe.learning_rate_at(number) for number in range(10)]
    assert rates[0] == 0.2
    assert rates[5] == pytest.approx(0.1)
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > 0


@pytest.mark.parametrize("change", [{"num_epochs": 0}, {"learning_rate": float("nan")}, {"momentum": -0.1}], ids=str)
def test_what_cannot_train_anything_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(change))):
        FederationSettings(**change)  # type: ignore[arg-type]
