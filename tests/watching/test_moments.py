"""Moments of patches and channels against the patches written out, and the priors against noise drawn many times."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.watching.batch_moments import EntryMoments, ImageMoments
from quietnn.watching.moments import ChannelMoments, PatchMoments, concentration

LAYERS = {
    "linear": lambda: nn.Linear(12, 6),
    "plain": lambda: nn.Conv2d(4, 6, 3),
    "padded": lambda: nn.Conv2d(4, 6, 3, padding=1),
    "strided": lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "grouped": lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1),
    "depthwise": lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1),
    "dilated": lambda: nn.Conv2d(4, 6, 3, dilation=2, padding=2),
    "same": lambda: nn.Conv2d(4, 6, (5, 3), padding="same"),
    "reflected": lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
    "pointwise": lambda: nn.Conv2d(4, 6, 1, stride=2),
    "one dimension": lambda: nn.Conv1d(4, 6, 5, stride=3, padding=2),
    "three dimensions": lambda: nn.Conv3d(2, 4, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 1)),
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(3)
    return LAYERS[request.param]().double().requires_grad_(False)


def inputs_for(layer: nn.Module, num_images: int = 40) -> Tensor:
    """Inputs whose entries have means, differ in scale and are correlated."""
    sizes = {nn.Linear: (12,), nn.Conv1d: (4, 11), nn.Conv2d: (4, 7, 6), nn.Conv3d: (2, 3, 4, 5)}[type(layer)]
    generator = torch.Generator().manual_seed(5)
    common = torch.randn(num_images, *(1 for _ in sizes), generator=generator, dtype=torch.float64)
    single = torch.randn(num_images, *sizes, generator=generator, dtype=torch.float64)
    offset = torch.rand(sizes, generator=generator, dtype=torch.float64)
    return common * offset + single * (0.5 + offset) + offset


def apply(layer: nn.Module, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if isinstance(layer, nn.Linear):
        return functional.linear(inputs, weight, bias)
    return layer._conv_forward(inputs, weight, bias)


def patches_of(layer: nn.Module, inputs: Tensor, channel: int) -> Tensor:
    """The patches that one channel sees, (positions, entries), by probing it with one weight at a time."""
    entries = layer.weight[channel].numel()
    columns = []
    for index in range(entries):
        probe = torch.zeros_like(layer.weight)
        probe[channel].view(-1)[index] = 1
        columns.append(apply(layer, inputs, probe).movedim(1, 0)[channel].flatten())
    return torch.stack(columns, dim=1)


def test_patch_moments_are_those_of_the_patches_written_out(layer: nn.Module) -> None:
    inputs = inputs_for(layer, 6)
    moments = PatchMoments.of(layer, EntryMoments.of(inputs))
    for channel in (0, layer.weight.shape[0] - 1):
        patches = patches_of(layer, inputs, channel)
        mean = patches.mean(0)
        torch.testing.assert_close(moments.squared_means[channel], (mean**2).sum())
        torch.testing.assert_close(moments.variances[channel], patches.var(0, correction=0).sum())
        torch.testing.assert_close(moments.means[channel], mean.sum())


def test_a_channels_last_batch_has_the_same_moments() -> None:
    layer = LAYERS["padded"]().double()
    inputs = inputs_for(layer)
    other = PatchMoments.of(layer, EntryMoments.of(inputs.contiguous(memory_format=torch.channels_last)))
    torch.testing.assert_close(PatchMoments.of(layer, EntryMoments.of(inputs)).variances, other.variances)


def test_noise_moves_means_and_variances_as_much_as_predicted(layer: nn.Module) -> None:
    """400 draws, pooled over channels: the mean's shift and the variance's growth, to five standard errors."""
    inputs, noise_variance, num_draws = inputs_for(layer), 0.01, 400
    moments = PatchMoments.of(layer, EntryMoments.of(inputs))
    generator = torch.Generator().manual_seed(7)
    shifts, growths = [], []
    clean = apply(layer, inputs, layer.weight, layer.bias).movedim(1, 0).flatten(1)
    for _ in range(num_draws):
        noise = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64) * noise_variance**0.5
        bias_noise = torch.randn(layer.bias.shape, generator=generator, dtype=torch.float64) * noise_variance**0.5
        noisy = apply(layer, inputs, layer.weight + noise, layer.bias + bias_noise).movedim(1, 0).flatten(1)
        shifts.append(noisy.mean(1) - clean.mean(1))
        growths.append(noisy.var(1, correction=0) - clean.var(1, correction=0))
    standardised = torch.stack(shifts) ** 2 / (noise_variance * (moments.squared_means + 1))
    growth = torch.stack(growths)
    count = standardised.numel()
    assert abs(float(standardised.mean()) - 1) < 5 * (2 / count) ** 0.5
    predicted = noise_variance * moments.variances
    error = growth.std() / count**0.5
    assert abs(float((growth - predicted).mean())) < 5 * float(error)


def test_single_channels_stray_from_the_predicted_growth_as_much_as_predicted(layer: nn.Module) -> None:
    """`Var[v'] = 4 s w^T C^2 w + 2 s^2 tr(C^2)`; the second term is approximated, so to within 30 %."""
    inputs, noise_variance = inputs_for(layer), 0.002
    count = int(layer.weight[0].numel())
    exact, approximate = 0.0, 0.0
    moments = PatchMoments.of(layer, EntryMoments.of(inputs))
    outputs = apply(layer, inputs, layer.weight, layer.bias)
    narrow = concentration(layer, inputs, outputs, moments.variances)
    for channel in range(layer.weight.shape[0]):
        patches = patches_of(layer, inputs, channel)
        centred = patches - patches.mean(0)
        covariance = centred.T @ centred / len(centred)
        weight = layer.weight[channel].flatten()
        power, trace = float(weight @ covariance @ weight), float(moments.variances[channel])
        curvature = float(weight @ covariance @ covariance @ weight)
        exact += 4 * noise_variance * curvature + 2 * noise_variance**2 * float((covariance**2).sum())
        growth = noise_variance * trace / power
        approximate += narrow * (4 * growth + 2 * growth**2) * power**2
    assert 1 / count * 0.5 < narrow <= 1
    assert approximate == pytest.approx(exact, rel=0.3)


def test_concentration_is_one_for_one_direction_and_small_for_many() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(50, 20, bias=False).requires_grad_(False)
    direction = torch.randn(50)
    along = torch.randn(400, 1) * direction
    white = torch.randn(400, 50)
    for inputs, low, high in ((along, 0.7, 1.0), (white, 0.0, 0.06)):
        variances = PatchMoments.of(layer, EntryMoments.of(inputs)).variances
        assert low < concentration(layer, inputs, layer(inputs), variances) <= high


def channel_moments(activations: Tensor, about: Tensor) -> ChannelMoments:
    return ChannelMoments.of(ImageMoments.of(activations, about=about), about=about)


def test_channel_moments_are_those_of_all_positions() -> None:
    torch.manual_seed(1)
    activations = torch.randn(30, 3, 4, 5, dtype=torch.float64) * 2 + 7
    moments = channel_moments(activations, torch.tensor([7.0, 6.0, 0.0]))
    flat = activations.movedim(1, 0).flatten(1)
    torch.testing.assert_close(moments.mean, flat.mean(1))
    torch.testing.assert_close(moments.variance - moments.mean_error, flat.var(1, correction=0))
    torch.testing.assert_close(moments.mean_error, activations.mean((2, 3)).var(0) / 30)


def test_the_sampling_errors_are_those_of_fresh_images() -> None:
    """Images share a level at all positions, so that positions are far from independent."""
    generator = torch.Generator().manual_seed(2)
    means, variances, stated = [], [], []
    for _ in range(300):
        level = torch.randn(25, 8, 1, generator=generator, dtype=torch.float64)
        activations = level + torch.randn(25, 8, 16, generator=generator, dtype=torch.float64)
        moments = channel_moments(activations, torch.zeros(8))
        means.append(moments.mean)
        variances.append(moments.variance)
        stated.append(torch.stack([moments.mean_error, moments.variance_error]))
    mean_error, variance_error = torch.stack(stated).mean((0, 2)).tolist()
    assert torch.stack(means).var().item() == pytest.approx(mean_error, rel=0.1)
    assert torch.stack(variances).var().item() == pytest.approx(variance_error, rel=0.15)
    assert torch.stack(variances).mean().item() == pytest.approx(2.0, rel=0.02)  # unbiased


def test_large_means_cost_no_digits_of_the_variance() -> None:
    activations = 1e4 + torch.randn(50, 1, 100, generator=torch.Generator().manual_seed(0))
    moments = channel_moments(activations, torch.tensor([1e4]))
    assert moments.variance.item() == pytest.approx(activations.double().var().item(), rel=1e-3)
