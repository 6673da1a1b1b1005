"""One part: its formula, and the gain and offset of a channel, which it undoes exactly."""

import pytest
import torch
from torch import nn

from quietnn.observation import undone
from quietnn.repairs.beside.part import Part, ones, output_axes


def low_rank(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 2), torch.randn(2, columns)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize(("gain", "offset"), [(1.0, 0.0), (0.5, 0.0), (0.5, 0.25), (1.0, -0.25)])
@pytest.mark.parametrize("is_scaled", [True, False])
@pytest.mark.parametrize("has_addition", [True, False])
def test_behind_a_channel_it_gives_what_it_gave_at_unit_gain(
    axis: int | None, gain: float, offset: float, is_scaled: bool, has_addition: bool
) -> None:
    torch.manual_seed(0)
    sent = torch.randn(5, 7)
    arrived = gain * sent + offset
    scale = ones(sent, axis) * torch.rand(()) if is_scaled else None
    if scale is not None and axis is not None:
        scale = torch.rand_like(scale)
    part = Part(scale, low_rank(5, 7) if has_addition else None)
    behind = part.behind(gain, offset, sent, axis)
    torch.testing.assert_close(behind.applied(arrived), part.applied(undone(arrived, gain, offset)))
    if behind.low_rank is not None:
        assert behind.low_rank[0].shape[1] == 2 * has_addition + (offset != 0)


def test_nothing_is_nothing_and_the_number_format_stays() -> None:
    weight = torch.randn(3, 2, 4, dtype=torch.bfloat16)
    assert torch.equal(Part().applied(weight), weight)
    assert not Part().added(weight).any()
    part = Part(ones(weight, 0), low_rank(3, 8))
    assert part.applied(weight).dtype == torch.bfloat16
    assert part.applied(weight).shape == weight.shape


def test_outputs_run_along_the_first_axis_unless_a_layer_says_otherwise() -> None:
    pytorch_utils = pytest.importorskip("transformers.pytorch_utils")
    network = nn.Sequential(
        nn.Embedding(9, 4), pytorch_utils.Conv1D(6, 4), nn.Linear(6, 4), nn.Linear(4, 9, bias=False)
    )
    network[3].weight = network[0].weight  # tied: named once, by the embedding
    assert output_axes(network) == {"0.weight": None, "1.weight": 1, "2.weight": 0}
