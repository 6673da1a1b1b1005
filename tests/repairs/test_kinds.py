"""Which kind of network each repair is for."""

import pytest
import torch
from torch import nn

from quietnn.repairs.kinds import has_kernels, has_stored_statistics, is_network, normalises_inputs, stores_statistics


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
def test_where_a_common_normalises_inputs(layers: list[nn.Module], undone: bool) -> None:
    assert normalises_inputs(nn.Sequential(nn.Linear(4, 4), *layers)) == undone


def test_batch_norm_with_and_without_statistics_and_convolutions() -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    assert has_stored_statistics(plain)
    assert not has_kernels(plain)
    assert has_kernels(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    assert not has_stored_statistics(nn.BatchNorm1d(4, track_running_stats=False))
    instance = nn.InstanceNorm1d(4, track_running_stats=True)
    assert stores_statistics(instance)
    assert not has_stored_statistics(instance), "no BatchNorm to calibrate"


@pytest.mark.parametrize("what", [torch.zeros(3), {"weight": torch.zeros(3)}])
def test_tensors_and_state_dicts_are_no_networks(what: object) -> None:
    assert not is_network(what)
    assert not has_stored_statistics(what)
    assert not normalises_inputs(what)
