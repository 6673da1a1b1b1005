"""Every repair takes a DataLoader: what it needs in memory it gathers, and the rest it runs batch by batch."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import quietnn
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.base import Repaired
from quietnn.repairs.branches import denoise_branches
from quietnn.repairs.energy import restore_energy
from quietnn.repairs.fitting.whitened import PosteriorSettings
from quietnn.repairs.posterior import posterior
from quietnn.repairs.self_training import self_train

NOISE = 0.01
SHORT = PosteriorSettings(num_steps=3, num_guard_steps=3)


def batches_of(examples: Any, *, batch_size: int = 16, shuffle: bool = False) -> Evidence:
    generator = torch.Generator().manual_seed(1)
    dataset = TensorDataset(examples.inputs, examples.labels)
    return Evidence(DataLoader(dataset, batch_size, shuffle=shuffle, generator=generator), batch_size=batch_size)


@pytest.mark.parametrize("method", ["self_trained", "posterior", "finetuned", "calibrated_balanced", "mmse_pb"])
def test_a_loader_gives_what_tensors_give(miniature: Any, method: str) -> None:
    received = quietnn.transmit(miniature.model, wnr_db=10.0, seed=0)
    in_memory = Evidence(miniature.inputs, miniature.labels, batch_size=16)
    whole, streamed, shuffled = (
        quietnn.repair(received, one, method=method).model
        for one in (in_memory, batches_of(miniature), batches_of(miniature, shuffle=True))
    )
    for name, value in whole.state_dict().items():
        assert torch.equal(streamed.state_dict()[name], value), name
    assert accuracy(shuffled, miniature) >= accuracy(received.received, miniature)


def accuracy(network: nn.Module, examples: Any) -> float:
    return float((network.eval()(examples.inputs).argmax(1) == examples.labels).double().mean())


def test_passes_of_starts_count_in_what_begins_from_them(miniature: Any) -> None:
    """Three layers, one of them in front of the BatchNorm: a third of a pass, and 32 of 60 inputs once more."""
    observation = Observation(miniature.model, NOISE)
    partial = (1 + 32 / 60) / 3
    for fit in (posterior, self_train):
        whole, streamed = (
            fit(observation, batches_of(miniature, batch_size=size), settings=SHORT) for size in (60, 16)
        )
        assert streamed.passes - whole.passes == pytest.approx(partial - 1)


@pytest.mark.parametrize("repair", [denoise_branches, restore_energy])
def test_a_head_is_centred_by_batches_as_by_all_inputs_at_once(
    layer_normed: Any, repair: Callable[..., Repaired]
) -> None:
    observation = Observation(layer_normed.model, NOISE)
    whole, streamed = (
        repair(observation, one, balanced_classes=True)
        for one in (Evidence(layer_normed.inputs), batches_of(layer_normed))
    )
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(streamed.model.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    assert not torch.equal(whole.model[-1].bias, layer_normed.model[-1].bias)


def test_branches_read_no_more_than_two_inputs_of_a_stream(layer_normed: Any) -> None:
    num_batches = 0

    class Loader:
        def __iter__(self) -> Iterator[Tensor]:
            nonlocal num_batches
            for part in layer_normed.inputs.split(16):
                num_batches += 1
                yield part

    denoise_branches(Observation(layer_normed.model, NOISE), Evidence(Loader(), batch_size=16))
    assert num_batches == 1


def test_labels_of_a_loader_are_left_out_where_asked_for(miniature: Any) -> None:
    unlabelled = batches_of(miniature).without_labels()
    assert unlabelled.is_streamed
    assert not unlabelled.has_labels
    assert unlabelled.first(20).shape == (20, 8)
