"""Statistics that are carried along from a start."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from quietnn.repairs.fitting.moving_norm import Anchor, ExampleMoments
from quietnn.repairs.fitting.moving_statistics import Blending

EPSILON = 1e-5


def example_moments(seed: int, num_examples: int = 12) -> ExampleMoments:
    generator = torch.Generator().manual_seed(seed)
    return ExampleMoments.of(torch.randn(num_examples, 3, 4, generator=generator, dtype=torch.float64) * 2 + 1)


@given(st.integers(0, 50), st.floats(0.1, 10.0), st.floats(-5.0, 5.0))
def test_scales_and_shifts_of_a_channel_are_undone(seed: int, scale: float, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    examples = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    stored = torch.rand(3, generator=generator).double(), torch.rand(3, generator=generator).double() + 0.5
    anchor = Anchor.of(ExampleMoments.of(examples), stored, 0.0)
    mean, variance = anchor.statistics(ExampleMoments.of(scale * examples + shift), 0.0)
    torch.testing.assert_close(mean, scale * stored[0] + shift)
    torch.testing.assert_close(variance, scale**2 * stored[1])


def test_at_the_start_they_are_the_starts_own() -> None:
    moments = example_moments(0)
    stored = torch.tensor([0.3, -1.0, 5.0], dtype=torch.float64), torch.tensor([0.0, 2.0, 1e4], dtype=torch.float64)
    mean, variance = Anchor.of(moments, stored, EPSILON).statistics(moments, EPSILON)
    torch.testing.assert_close(mean, stored[0])
    torch.testing.assert_close(variance, stored[1], atol=1e-12, rtol=1e-9)


def test_a_channel_that_is_dead_in_the_examples_stays_finite() -> None:
    dead = ExampleMoments.of(torch.zeros(12, 3, 4))
    anchor = Anchor.of(dead, (torch.full((3,), 0.2), torch.ones(3)), EPSILON)
    for moments in (dead, ExampleMoments.of(torch.randn(12, 3, 4))):
        mean, variance = anchor.statistics(moments, EPSILON)
        assert torch.isfinite(mean).all()
        assert (variance > -EPSILON).all()


@pytest.mark.parametrize("chunk", [20, 7])
def test_a_network_follows_its_weights_from_the_start_on(chunk: int) -> None:
    torch.manual_seed(0)
    start = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    start[1].running_mean.copy_(torch.randn(4))
    start[1].running_var.copy_(torch.rand(4) + 0.5)
    examples = torch.rand(20, 3, 6, 6)
    network = copy.deepcopy(start)
    blending = Blending(network, lambda: network(examples[:2]))
    blending.anchor(start, lambda: [start(part) for part in examples.split(chunk)])
    expected = start(examples)
    with blending:
        same = network(examples)
    torch.testing.assert_close(same, expected)
    with torch.no_grad():
        network[0].weight.mul_(3.0)
        network[0].bias.add_(1.0)
    with blending:
        scaled = network(examples)
    torch.testing.assert_close(scaled, expected, atol=1e-4, rtol=1e-4)
