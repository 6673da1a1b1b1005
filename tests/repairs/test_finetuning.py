"""Plain fine-tuning, the baseline."""

from collections.abc import Callable, Mapping

import pytest
import torch
from tests.repairs.blobs import blobs, norm_net
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.repairs.finetuning import finetune
from quietnn.repairs.front import repair
from quietnn.repairs.posterior import posterior

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


def test_low_rank_moves_matrices_by_little_rank_and_nothing_else() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10))
    inputs, labels = torch.randn(60, 12), torch.arange(60) % 10
    tuned = finetune(network, inputs, labels, learning_rates=(0.1,), rank=2)
    assert tuned.name == "lora"
    for layer, other in ((network[0], tuned.model[0]), (network[2], tuned.model[2])):
        assert int(torch.linalg.matrix_rank(other.weight - layer.weight, rtol=1e-4)) == 2
        assert torch.equal(other.bias, layer.bias)
    before, after = (nn.functional.cross_entropy(one(inputs), labels) for one in (network, tuned.model))
    assert float(after.detach()) < float(before.detach()) - 0.1


def test_low_rank_is_a_row_of_the_table() -> None:
    network = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10))
    assert repair(network, torch.randn(30, 12), torch.arange(30) % 10, method="lora", wnr_db=3.0).name == "lora"


def test_fine_tuning_can_begin_where_the_posterior_does() -> None:
    observation, (inputs, labels) = transmit(norm_net(), wnr_db=-3.0, seed=1), blobs()
    own = posterior(observation, inputs, labels)
    assert own.details["chosen"] == "posterior"
    still = finetune(observation, inputs, labels, start="repaired", learning_rates=(1e-12,))
    assert still.name == "finetuned_started"
    losses = own.details["held_out_loss"]
    start = min((name for name in losses if name not in ("received", "posterior")), key=losses.__getitem__)
    expected = float(nn.functional.cross_entropy(still.model(inputs), labels).detach())
    assert expected == pytest.approx(losses[start], rel=0.02), "steps of no length stay at the start"
    with pytest.raises(InvalidConfig, match="start='received'"):
        finetune(observation, inputs, labels, start="best")  # type: ignore[arg-type]


def test_l2_sp_is_held_back_to_its_start() -> None:
    observation, (inputs, labels) = transmit(norm_net(), wnr_db=-3.0, seed=1), blobs()
    settings = {"start": "repaired", "learning_rates": (1e-2,)}

    def way(pull: float) -> float:
        tuned = finetune(observation, inputs, labels, pull=pull, **settings)  # type: ignore[arg-type]
        still = finetune(observation, inputs, labels, start="repaired", learning_rates=(1e-12,))
        pairs = zip(tuned.model.parameters(), still.model.parameters(), strict=True)
        return sum(float((one - other).detach().square().sum()) for one, other in pairs)

    assert way(10.0) < 0.5 * way(0.0)
    with pytest.raises(InvalidConfig, match="pull is -1"):
        finetune(observation, inputs, labels, pull=-1.0)


@pytest.mark.parametrize("method", ["finetuned_started", "lora_started", "l2_sp"])
def test_peers_that_share_our_start_are_rows_of_the_table(method: str) -> None:
    observation, (inputs, labels) = transmit(norm_net(), wnr_db=0.0, seed=1), blobs()
    assert repair(observation, inputs, labels, method=method).name == method
