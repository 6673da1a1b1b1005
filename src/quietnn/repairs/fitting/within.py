"""A posterior where only a few numbers beside the weights may move, chosen by `Where`.

Gains and biases of normalisation layers carry no noise, so their unit is that of the weights behind them. A gain that
changes by a fraction `f` changes the `m` weights that read its channel by `f`: together `f sqrt(m (1 + eta))` of their
spread. The unit is therefore `1 / sqrt(m (1 + eta))` of the layer's root mean square, with `m` the mean over channels.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from quietnn.noise import TensorNoise
from quietnn.repairs.beside.where import Where, rows_of
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.subspaces import LowRank, ScaledLowRank, Scales, Subspace, Transposed, Whole
from quietnn.repairs.fitting.whitened import Fit, PosteriorSettings, Whitened, descend, maximise, trust_radius
from quietnn.watching.batch_moments import wide
from quietnn.weights import Weights

_POWER_ITERATIONS = 2
"""Rounds that turn random directions towards the leading ones; the gradients of a few examples have few."""


def maximise_where(
    scratch: Scratch,
    whitened: Whitened,
    where: Where,
    positions: Tensor,
    *,
    settings: PosteriorSettings,
    kept: float = 1.0,
    seed: int = 0,
) -> Fit:
    """The fit to some examples of all that may move; `scratch` is `digital` unless all weights may."""
    if not where.weights_stay:
        return maximise(scratch, whitened, positions, settings=settings, kept=kept, seed=seed)
    gaussian, spaces = digital(scratch, whitened)
    if where.trainable == "adapter":
        spaces |= leading(scratch, gaussian, spaces, where, positions, seed=seed)
    return maximise_within(scratch, gaussian, spaces, positions, settings=settings, kept=kept, seed=seed)


def digital(scratch: Scratch, whitened: Whitened) -> tuple[Whitened, dict[str, Subspace]]:
    """What is digital beside an analog array: a scale for each output, all biases, gains of normalisation layers.

    No scale where a normalisation undoes it. Returns the Gaussian with the gains in it, and what may move.
    """
    scale_free, axes = scratch.scale_free(), scratch.output_axes()
    noisy = {name: tensor for name, tensor in whitened.centre.items() if name not in scratch.gains}
    num_noisy = sum(tensor.numel() for tensor in noisy.values())
    readers = num_noisy / max(sum(gains.numel() for gains in scratch.gains.values()), 1)
    power = math.fsum(float(wide(tensor).square().sum(dtype=torch.float64)) for tensor in noisy.values())
    spread_power = math.fsum(_one_spread(whitened.spread[name]) ** 2 * tensor.numel() for name, tensor in noisy.items())
    fraction = math.sqrt(spread_power / (readers * power)) if power else 0.0
    layers: dict[str, float] = {}
    for name, gains in scratch.gains.items():
        layer = name.rpartition(".")[0]
        layers[layer] = layers.get(layer, 0.0) + float(wide(gains).double().square().mean())
    units = {name: fraction * math.sqrt(layers[name.rpartition(".")[0]]) for name in scratch.gains}
    gaussian = Whitened({**whitened.centre, **scratch.gains}, {**whitened.spread, **units})
    spaces: dict[str, Subspace] = {}
    for name, tensor in gaussian.centre.items():
        if tensor.dim() == 1:
            spaces[name] = Whole(wide(tensor))
        elif name not in scale_free and axes[name] is not None:
            rows = wide(rows_of(tensor))
            spaces[name] = Transposed(Scales.of(rows.T)) if axes[name] else Scales.of(rows)
    return gaussian, spaces


def leading(
    scratch: Scratch,
    whitened: Whitened,
    beside: Mapping[str, Subspace],
    where: Where,
    positions: Tensor,
    *,
    seed: int,
) -> dict[str, Subspace]:
    """For every matrix the directions in which the loss of the examples falls most: the gradient's singular ones.

    A matrix that has a scale beside it keeps that. One that is too small for the rank, or on which a budget would be
    wasted, gets no direction.
    """
    generator = torch.Generator().manual_seed(seed)
    gradients = scratch.gradient(whitened.centre, positions, generator)[1]
    axes, noisy = (
        scratch.output_axes(),
        {name: whitened.centre[name] for name in gradients if name not in scratch.gains},
    )
    most = where.most_rank(noisy)
    bases: dict[str, Tensor] = {}
    worth: dict[str, Tensor] = {}
    for name in noisy:
        gradient = gradients.pop(name)
        if gradient.dim() > 1 and min(rows_of(gradient).shape) > 1:
            rows = wide(rows_of(gradient))
            bases[name], worth[name] = _right_singular(rows.T if axes[name] else rows, most, generator)
            worth[name] = worth[name] * _one_spread(whitened.spread[name])
    there = scratch.beside()
    spent = sum(space.origin().numel() for space in beside.values())
    spent += sum(scale.numel() for name, scale in there.scales.items() if name not in beside)
    spent += sum(one.numel() for pair in there.low_rank.values() for one in pair)
    ranks = where.ranks(worth, noisy, num_parameters=scratch.num_parameters, spent=spent)
    found: dict[str, Subspace] = {}
    for name, rank in ranks.items():
        rows = wide(rows_of(noisy[name]))
        rows, basis = rows.T if axes[name] else rows, bases[name][:rank]
        space: Subspace = ScaledLowRank.of(basis, rows) if name in beside else LowRank(basis, len(rows))
        found[name] = Transposed(space) if axes[name] else space
    return found


def _right_singular(matrix: Tensor, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """About the leading right singular vectors, as orthonormal rows, and the singular values (Halko et al. 2011)."""
    rank = min(rank, *matrix.shape)
    basis = torch.randn(matrix.shape[1], rank, generator=generator, dtype=torch.float32).to(matrix)
    for _ in range(_POWER_ITERATIONS):
        basis = torch.linalg.qr(matrix.T @ (matrix @ basis))[0]
    values, turned = torch.linalg.svd(matrix @ basis, full_matrices=False)[1:]
    return turned @ basis.T, values


def maximise_within(
    scratch: Scratch,
    whitened: Whitened,
    subspaces: Mapping[str, Subspace],
    positions: Tensor,
    *,
    settings: PosteriorSettings,
    kept: float = 1.0,
    seed: int = 0,
) -> Fit:
    """Minimise `sum of losses + |v|^2 / 2` over what may move, from `v = 0`, and go a share of the way there."""
    num_examples = scratch.num_examples
    generator = torch.Generator().manual_seed(seed)
    batches = scratch.mini_batches(positions, generator)
    units = {name: _one_spread(whitened.spread[name]) for name in subspaces}
    point = {name: space.origin() for name, space in subspaces.items()}

    def weights() -> Weights:
        moved = dict(whitened.centre)
        for name, space in subspaces.items():
            added = space.expand(point[name]).mul_(units[name]).view_as(moved[name])
            moved[name] = (moved[name] + added).to(moved[name].dtype)
        return moved

    def gradient() -> tuple[float, Sequence[Tensor]]:
        loss, gradients = scratch.gradient(weights(), next(batches), generator)
        return loss, [
            space.project(wide(rows_of(gradients.pop(name))))
            .mul_(num_examples * units[name])
            .add_(point[name], alpha=settings.prior)
            for name, space in subspaces.items()
        ]

    first = gradient()
    num_moving = sum(int(torch.count_nonzero(direction)) for direction in first[1])
    radius = trust_radius(num_examples * first[0], num_moving)
    known = [first]
    del first
    losses = descend(
        list(point.values()),
        lambda: known.pop() if known else gradient(),
        num_steps=settings.num_steps,
        step_size=settings.step_size * radius,
    )
    for moved in point.values():
        moved.mul_(kept)
    square = math.fsum(float(moved.double().square().sum()) for moved in point.values())
    move = math.sqrt(square / max(sum(moved.numel() for moved in point.values()), 1))
    added = {name: space.told(point[name] * units[name]) for name, space in subspaces.items()}
    return Fit(weights(), losses, move, added)


def _one_spread(spread: TensorNoise) -> float:
    """The spread of an average weight: an addition has low rank only if its entries share their unit."""
    return math.sqrt(float(spread.double().square().mean())) if isinstance(spread, Tensor) else spread
