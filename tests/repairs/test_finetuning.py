"""Plain fine-tuning, the baseline."""

from collections.abc import Callable, Mapping

import pytest
from tests.repairs.blobs import blobs, norm_net
from torch import Tensor

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.repairs.finetuning import finetune

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


def test_fine_tuning_chooses_its_step_size_on_held_out_examples(snapshot: Snapshot) -> None:
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    before = snapshot(observation.received.state_dict())
    result = finetune(observation.received, Evidence(*blobs()), learning_rates=(1e-6, 1e-2))
    assert snapshot(observation.received.state_dict()) == before
    assert result.details["learning_rate"] == 1e-2
    assert result.details["held_out_loss"][1e-2] < result.details["held_out_loss"][1e-6]
    with pytest.raises(InvalidConfig, match="positive"):
        finetune(observation.received, Evidence(*blobs()), learning_rates=())
