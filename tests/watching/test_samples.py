"""Samples of one batch and of many."""

import pytest
import torch
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.watching.samples import HeadSample, Visit
from quietnn.watching.survey import Run


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    """A layer that is not known is no matter as long as nobody asks."""
    sample = Visit(Run(), "0", nn.BatchNorm1d(2), torch.rand(4, 2))
    assert sample.num_images == 4
    assert sample.channels.mean.shape == (2,)
    assert "patches" not in vars(sample)


def test_the_first_images_alone_tell_the_concentration() -> None:
    layer, inputs = nn.Linear(5, 3), torch.rand(50, 5, generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def sample(start: int, stop: int) -> Visit:
        run = Run()
        return Visit(run, "1", nn.BatchNorm1d(3), run.through(layer, inputs[start:stop]))

    merged = sample(0, 32).over(sample(start, start + 10) for start in (30, 0, 10, 40, 20))
    assert merged.num_images == 50
    assert merged.concentration == pytest.approx(sample(0, 50).concentration, rel=1e-5)


def test_outputs_of_no_linear_layer_are_passed_on_as_they_are() -> None:
    merged = HeadSample.merged(HeadSample(Run(), torch.rand(4, 3, 2)) for _ in range(3))
    assert merged.layer is None
    assert merged.shape == (4, 3, 2)


def test_inputs_of_several_sizes_are_refused() -> None:
    layer, norm, run = nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1), Run()
    parts = [Visit(run, "1", norm, run.through(layer, torch.rand(2, 1, size))) for size in (5, 6)]
    with pytest.raises(InvalidConfig, match="one size"), torch.no_grad():
        parts[0].over(parts)
