"""Between Flower's records and state dicts."""

import pytest
import torch

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

import numpy as np
from flwr.serverapp.strategy import FedAdam

from quietnn.federated.flower.arrays import flat, in_kind, remembered, remind, to_arrays, to_state

pytestmark = pytest.mark.flower

STATE = {"fc.weight": torch.tensor([[1.0, 2.0]]), "bn.num_batches_tracked": torch.tensor(7)}


def test_a_state_comes_back_with_its_types_and_with_memory_of_its_own() -> None:
    arrays = to_arrays(STATE)
    one, again = to_state(arrays), to_state(arrays)
    assert {name: (tensor.dtype, tensor.tolist()) for name, tensor in one.items()} == {
        name: (tensor.dtype, tensor.tolist()) for name, tensor in STATE.items()
    }
    one["fc.weight"].zero_()
    assert again["fc.weight"].tolist() == [[1.0, 2.0]]


def test_what_a_strategy_computed_in_double_precision_is_in_kind_again() -> None:
    wide = to_arrays(STATE, wide=True)
    assert {array.dtype for array in wide.values()} == {"float64"}
    found = in_kind(to_arrays({name: tensor + 0.4 for name, tensor in to_state(wide).items()}), STATE)
    assert found["bn.num_batches_tracked"].dtype == torch.int64
    assert int(found["bn.num_batches_tracked"]) == 7, "counters are rounded"
    assert found["fc.weight"].dtype == torch.float32


def test_a_strategy_is_reminded_of_its_moments_in_their_order() -> None:
    old, new = (FedAdam(fraction_train=1.0) for _ in range(2))
    old.m_t = {"z": np.ones(2), "a": np.zeros(3)}
    old.current_arrays = {"w": np.full(2, 5.0)}
    memory = remembered(old)
    remind(new, {name: memory[name] for name in sorted(memory, reverse=True)})
    assert list(new.m_t) == ["z", "a"]
    assert new.m_t["z"].tolist() == [1.0, 1.0]
    assert new.current_arrays["w"].tolist() == [5.0, 5.0]


def test_metrics_are_flat_entries() -> None:
    assert flat({"train-loss": 0.5}) == {"train_loss": 0.5}
    assert flat(None) == {}
