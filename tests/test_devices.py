"""Other kinds of floats, and another device: every repair in float64 and bfloat16, and what runs on the meta device.

There is no GPU here. A tensor on the meta device has no values, so whatever mixes devices on the way fails on it too.
"""

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.repairs.finetuning import _LowRank

LABELS = torch.arange(24) % 3


class Residual(nn.Module):
    """A branch added to what enters it, between layers that normalise each input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last_norm = nn.LayerNorm(8), nn.LayerNorm(8)
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        added: Tensor = inputs + self.narrow(torch.relu(self.wide(self.norm(inputs))))
        logits: Tensor = self.head(self.last_norm(added))
        return logits


def with_batch_norm() -> tuple[nn.Module, Tensor]:
    convolutions = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(6, 3)).eval(), torch.randn(24, 2, 6, 6)


def with_layer_norm() -> tuple[nn.Module, Tensor]:
    return Residual().eval(), torch.randn(24, 8)


NETWORKS = {"BatchNorm": with_batch_norm, "LayerNorm": with_layer_norm}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_repair_keeps_the_dtype_of_the_network(network: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, inputs = NETWORKS[network]()
    observation = quietnn.transmit(model.to(dtype), wnr_db=6.0, seed=0)
    applied = [name for name, row in quietnn.REPAIRS.items() if row.applies(observation) and name != "auto"]
    assert {"mmse", "mmse_pb_layerwise", "self_trained", "posterior", "lora"} < set(applied)
    for name in applied:
        asked = {"teacher": model} if quietnn.REPAIRS[name].needs == "teacher" else {"labels": LABELS}
        asked |= {"trainable": "adapter", "rank": 1} if name == "matched_adapter" else {}
        repaired = quietnn.repair(observation, inputs.to(dtype), method=name, **asked).model
        assert {one.dtype for one in repaired.parameters()} == {dtype}, name
        assert all(bool(one.isfinite().all()) for one in repaired.state_dict().values()), name
        assert repaired(inputs.to(dtype)).dtype == dtype, name


@pytest.mark.parametrize("network", NETWORKS)
def test_which_weights_are_noisy_is_known_before_they_are_loaded(network: str) -> None:
    here, _ = NETWORKS[network]()
    there = NETWORKS[network]()[0].to("meta")
    assert quietnn.noisy_names(there) == quietnn.noisy_names(here) != ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_denoiser_stays_on_the_device_of_what_it_is_given(dtype: torch.dtype) -> None:
    received = torch.empty(3, 5, dtype=dtype, device="meta")
    estimate = quietnn.AffineDenoiser(0.7, 0.1)(received)
    assert (estimate.device.type, estimate.dtype, estimate.shape) == ("meta", dtype, received.shape)


def test_low_rank_matrices_are_on_the_device_of_the_weights() -> None:
    received = {"weight": torch.empty(12, 10, device="meta"), "bias": torch.empty(12, device="meta")}
    pairs = _LowRank(received, rank=2, seed=0)
    assert {one.device.type for one in pairs.point} == {"meta"}
    assert {one.device.type for one in pairs.weights().values()} == {"meta"}
    assert [one.shape for one in pairs.pull_back(received)] == [(2, 10), (12, 2)]


def test_weights_without_values_are_refused_with_a_remedy() -> None:
    with pytest.raises(quietnn.QuietnnError, match="on the meta device and has no values; load the weights first"):
        quietnn.repair(with_batch_norm()[0].to("meta"), wnr_db=6.0)
