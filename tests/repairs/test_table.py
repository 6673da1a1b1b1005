"""Every row of the table runs where it says that it applies, and a new row is everywhere at once."""

import copy

import pytest
import torch
from torch import nn

from quietnn import REPAIRS, Evidence, Observation, repair, transmit
from quietnn.methods import METHODS, NEEDS
from quietnn.observation import observe

LABELS = torch.arange(40) % 3


IMAGES = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0)) + LABELS[:, None, None, None]


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    ).eval()


def normalising() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize("name", list(REPAIRS))
def test_every_row_runs_on_a_network_that_it_applies_to(name: str) -> None:
    row = REPAIRS[name]
    network = next(one for one in (convolutional(), normalising()) if row.applies(observe(one)))
    observation = transmit(network, wnr_db=3.0, seed=0)
    before = copy.deepcopy(observation.received.state_dict())
    asked = {"teacher": network} if row.needs == "teacher" else {"labels": LABELS}
    adapter = {"trainable": "adapter", "rank": 2} if name == "matched_adapter" else {}  # its share is for larger ones
    made = repair(observation, IMAGES, method=name, **asked, **adapter)
    assert made.name == name or name.startswith("auto")
    assert made.passes <= 1.5 * row.cost + 1, "about what the table says"
    with torch.no_grad():
        assert torch.isfinite(made.model(IMAGES)).all()
    assert all(torch.equal(tensor, before[key]) for key, tensor in observation.received.state_dict().items())


@pytest.mark.parametrize("name", list(REPAIRS))
def test_a_row_has_a_label_a_reference_and_what_it_needs(name: str) -> None:
    row = REPAIRS[name]
    assert (row.name, row.method) == (name, METHODS[name])
    assert row.needs in NEEDS
    assert row.label
    assert row.reference
    kinds = (convolutional(), normalising())
    assert any(row.applies(observe(one)) for one in kinds)
    assert not any(row.unjudged(observe(one)) for one in kinds) or row.needs != "labels", (
        "nothing is judged without labels"
    )


@pytest.mark.parametrize("name", [name for name in REPAIRS if REPAIRS[name].needs == "nothing"])
def test_what_needs_nothing_takes_a_state_dict(name: str) -> None:
    state = convolutional().state_dict()
    assert set(repair(state, method=name, noise_variance=0.01).model) == set(state)


def test_the_same_seed_gives_the_same_network_and_rows_share_their_searches() -> None:
    observation, evidence = transmit(convolutional(), wnr_db=3.0, seed=0), Evidence(IMAGES, LABELS)
    one, other = (REPAIRS["mmse_pb"](observation, evidence, seed=seed) for seed in (1, 1))
    assert one.details["search"] is other.details["search"]
    again = REPAIRS["mmse_pb"](Observation(observation.received, observation.noise_variance), evidence, seed=1)
    assert again.details["temperatures"] == one.details["temperatures"]
