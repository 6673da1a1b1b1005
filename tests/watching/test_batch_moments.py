"""Moments of batches that merge into those of all examples."""

from functools import reduce

import pytest
import torch
from torch import Tensor, nn

from quietnn.watching.batch_moments import EntryMoments, ImageMoments, InputSum
from quietnn.watching.moments import ChannelMoments, PatchMoments

SIZES = ([7, 1, 12], [1, 1, 18], [20])


def inputs(*shape: int) -> Tensor:
    """Far from zero, and the first ten unlike the others: a merge that forgets what is between batches is found out."""
    values = torch.randn(20, *shape, generator=torch.Generator().manual_seed(0)) + 30
    values[:10] += 3
    return values


@pytest.mark.parametrize("sizes", SIZES)
def test_mean_and_variance_of_entries_merge_exactly(sizes: list[int]) -> None:
    values = inputs(3, 4)
    merged = reduce(EntryMoments.merged, map(EntryMoments.of, values.split(sizes)))
    torch.testing.assert_close(merged.mean, values.double().mean(0), rtol=1e-6, atol=0)
    torch.testing.assert_close(merged.variance, values.double().var(0, correction=0), rtol=1e-5, atol=0)
    unbiased = reduce(EntryMoments.merged, map(EntryMoments.unbiased, values.split(sizes)))
    assert unbiased.count == 20
    torch.testing.assert_close(unbiased.variance, values.double().var(0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("sizes", SIZES)
def test_moments_of_images_join_into_those_of_channels(sizes: list[int]) -> None:
    values, about = inputs(3, 5), torch.full((3,), 31.0)
    parts = [ImageMoments.of(part, about=about) for part in values.split(sizes)]
    merged = ChannelMoments.of(ImageMoments.joined(parts), about=about, epsilon=0.1)
    whole = ChannelMoments.of(ImageMoments.of(values, about=about), about=about, epsilon=0.1)
    for name in ("mean", "variance", "mean_error", "variance_error"):
        torch.testing.assert_close(getattr(merged, name), getattr(whole, name), rtol=1e-6, atol=0)
    assert merged.common_error == pytest.approx(whole.common_error, rel=1e-5)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 3), (6,)),
        (nn.Conv1d(4, 6, 3, groups=2, stride=2, padding=1), (4, 9)),
        (nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), (2, 5, 6)),
    ],
)
def test_moments_of_a_layer_merge(layer: nn.Module, shape: tuple[int, ...], sizes: list[int]) -> None:
    values = inputs(*shape)
    with torch.no_grad():
        outputs = layer(values)
        whole = InputSum.of(layer, values, outputs)
        pairs = zip(values.split(sizes), outputs.split(sizes), strict=True)
        merged = reduce(InputSum.merged, [InputSum.of(layer, *pair) for pair in pairs])
    for name in ("output_mean", "sum_mean", "covariance", "power"):
        torch.testing.assert_close(getattr(merged, name), getattr(whole, name), rtol=1e-3, atol=1e-4)
    entries = reduce(EntryMoments.merged, map(EntryMoments.of, values.split(sizes)))
    patches = PatchMoments.of(layer, entries)
    torch.testing.assert_close(
        patches.variances, PatchMoments.of(layer, EntryMoments.of(values)).variances, rtol=1e-5, atol=0
    )


def test_covariance_and_power_are_those_of_the_sum_of_inputs() -> None:
    layer, values = nn.Linear(6, 3).double(), inputs(6).double()
    with torch.no_grad():
        outputs = layer(values)
    found, sums = InputSum.of(layer, values, outputs), values.sum(1)
    torch.testing.assert_close(found.power, sums.var(correction=0).expand(3))
    expected = torch.stack([torch.cov(torch.stack([one, sums]), correction=0)[0, 1] for one in outputs.T])
    torch.testing.assert_close(found.covariance, expected)
