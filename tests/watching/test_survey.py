"""What a pass over two inputs tells of BatchNorms."""

import pytest
import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.watching.survey import Survey, survey


class Branched(nn.Module):
    """Declared in another order than called; one is never called, and one keeps no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.late, self.early, self.never = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.blind = nn.BatchNorm1d(4, track_running_stats=False)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        """Two layers and three BatchNorms."""
        hidden = self.early(self.first(inputs))
        return self.blind(self.late(self.second(hidden) + inputs))


def test_places_are_in_the_order_of_calls_with_the_share_of_layers_in_front() -> None:
    assert survey(Branched(), torch.rand(5, 4)) == Survey({"early": 1 / 5, "late": 3 / 5}, (), frozenset({"first"}))


def test_only_two_inputs_are_run_and_the_model_is_left_as_it_was() -> None:
    network, sizes = Branched(), []
    network.first.register_forward_hook(lambda _, args, __: sizes.append(len(args[0])))
    survey(network, torch.rand(5, 4))
    assert sizes == [2]
    assert network.training
    assert int(network.early.num_batches_tracked) == 0


def test_a_network_without_batch_norm_has_no_places() -> None:
    assert survey(nn.Linear(4, 2), torch.rand(5, 4)) == Survey({}, (), frozenset())


def test_too_few_inputs_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="at least 2"):
        survey(Branched(), torch.rand(1, 4))
