"""The Gaussian part of a posterior, and the thirty careful steps that add the examples to it."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig, check_is
from quietnn.noise import TensorNoise
from quietnn.repairs.affine import MMSE, mmse, weightwise_map
from quietnn.repairs.beside.part import Part
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.grouped import GroupedWeights
from quietnn.watching.batch_moments import wide
from quietnn.weights import Weights

_BETAS = (0.9, 0.99)
_EPSILON = 1e-12
_TINY = 1e-30
"""Below every spread; where there is none, nothing moves, and zero divided by this is zero."""

_RISE = 0.3
"""The share of the steps during which they grow."""


@dataclass(frozen=True)
class PosteriorSettings:
    """How the maximum is sought.

    Attributes:
        num_steps: gradients taken on all examples. Of more than a hundred each sees a mini-batch, and is shorter; there
            are as many more steps (`in_mini_batches`).
        num_guard_steps: gradients taken on each fold. Fewer, so that most of the cost goes into the fit that is used.
        step_size: peak step of every weight, relative to the radius of the trust region, see `trust_radius`.
        prior: weight of the Gaussian terms; 1 is the posterior, less trusts the examples more.

    >>> PosteriorSettings(num_steps=8).num_guard_steps
    14
    """

    num_steps: int = 32
    num_guard_steps: int = 14
    step_size: float = 0.3
    prior: float = 0.1

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        for name in ("num_steps", "num_guard_steps"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidConfig(f"{name} is {value!r}; it must be 1 or more: PosteriorSettings({name}=8)")
        for name in ("step_size", "prior"):
            check_is(getattr(self, name), Real, name, f"give a number: PosteriorSettings({name}=0.1)")
        if not 0 < self.step_size < math.inf:
            raise InvalidConfig(f"step_size is {self.step_size}; it must be positive, relative to the trust radius")
        if not 0 <= self.prior < math.inf:
            raise InvalidConfig(f"prior is {self.prior}; it must be zero or more, 1 for the posterior itself")


DEFAULT = PosteriorSettings()


def in_mini_batches(settings: PosteriorSettings, num_batches: float) -> PosteriorSettings:
    """Shorter steps, and as many more, where each sees one of so many mini-batches.

    A mini-batch tells the way within its own trust region, no farther. The radius goes with the root of what is seen.
    All steps together reach as far as those on all examples would.

    >>> in_mini_batches(PosteriorSettings(num_steps=32, num_guard_steps=14, step_size=0.3), 4.0)
    PosteriorSettings(num_steps=64, num_guard_steps=28, step_size=0.15, prior=0.1)
    """
    share = math.sqrt(num_batches)
    return replace(
        settings,
        num_steps=round(settings.num_steps * share),
        num_guard_steps=round(settings.num_guard_steps * share),
        step_size=settings.step_size / share,
    )


@dataclass(frozen=True)
class Whitened:
    """The Gaussian part of the posterior: `w = centre + spread u`, `u ~ N(0, 1)`, tensor by tensor."""

    centre: Weights
    spread: Mapping[str, TensorNoise]

    @classmethod
    def of(cls, by_group: GroupedWeights, centre: Weights, scale_free: Collection[str] = ()) -> "Whitened":
        """The spread of `p(w | r)` about a centre; a group without signal has none and stays.

        Where the next layer undoes the scale of a tensor (`scale_free`), MMSE `theta r` and the received weights
        are the same network. About `r` the spread is then `1 / theta` times as large, `sigma_z / sqrt(theta)`: a layer
        that is mostly noise is mostly unknown, and free to be fitted. `theta` is taken no smaller than it can be told
        from zero, `sqrt(2 / n)` for `n` weights.
        """
        spread: dict[str, TensorNoise] = {}
        for group, members in by_group.groups.items():
            statistics, noise_variance = by_group.statistics[group], by_group.group_noise(group)
            theta = mmse(statistics, noise_variance).theta
            told = max(theta, min(math.sqrt(2.0 / sum(by_group.weights[name].numel() for name in members)), 1.0))
            for name in members:
                # s^2 = theta sigma_z^2 with MMSE's theta, which is right where sigma_w^2 = 0 too
                squared: TensorNoise = theta * noise_variance
                if by_group.noise is not None:
                    noise = by_group.noise[name]
                    squared = weightwise_map(MMSE, by_group.prior(group, name), noise).theta * noise
                std = squared.sqrt().to(wide(centre[name])) if isinstance(squared, Tensor) else math.sqrt(squared)
                spread[name] = std / told if name in scale_free else std
        return cls(centre, spread)


@dataclass(frozen=True)
class Fit:
    """Where the steps ended, the mean loss at each of them, and the length of the way in root mean square of `u`.

    `added` tells, where the received weights stay, what stands beside each matrix (`subspaces.py`).
    """

    weights: Weights
    losses: tuple[float, ...]
    move: float
    added: Mapping[str, Part] = field(default_factory=dict)


def trust_radius(total_loss: float, num_weights: int) -> float:
    """The scale of the steps, `sqrt(2 L / d)`; with `prior = 1` it bounds the root mean square of `u`.

    >>> trust_radius(total_loss=50.0, num_weights=10_000)
    0.1
    """
    return math.sqrt(2.0 * max(total_loss, 0.0) / max(num_weights, 1)) if math.isfinite(total_loss) else 0.0


def maximise(
    scratch: Scratch,
    whitened: Whitened,
    positions: Tensor,
    *,
    settings: PosteriorSettings = DEFAULT,
    kept: float = 1.0,
    seed: int = 0,
) -> Fit:
    """Minimise `sum of losses + |u|^2 / 2` over `u`, from `u = 0`, on the examples at `positions`.

    The sum runs over all examples whatever the number of positions: a fit on a part stands for one on all. `kept` is
    the share of the way to the minimum at which the result stands.
    """
    num_examples = scratch.num_examples
    generator = torch.Generator().manual_seed(seed)
    batches = scratch.mini_batches(positions, generator)
    centre, spread = whitened.centre, whitened.spread
    point = scratch.moving(centre)

    def u_of(name: str) -> Tensor:
        std = spread[name]
        return (point[name] - centre[name]).div_(std.clamp_min(_TINY) if isinstance(std, Tensor) else std or 1.0)

    def gradient() -> tuple[float, Sequence[Tensor]]:
        loss, gradients = scratch.gradient(point, next(batches), generator)
        return loss, [
            wide(gradients.pop(name)).mul_(num_examples * spread[name]).add_(u_of(name), alpha=settings.prior)
            for name in point
        ]

    first = gradient()
    num_moving = sum(int(torch.count_nonzero(direction)) for direction in first[1])
    radius = trust_radius(num_examples * first[0], num_moving)
    known = [first]
    del first  # a gradient is as large as the network
    losses = descend(
        list(point.values()),
        lambda: known.pop() if known else gradient(),
        num_steps=settings.num_steps,
        step_size=settings.step_size * radius,
        scales=[spread[name] for name in point],
    )
    for name, tensor in point.items() if kept != 1.0 else ():
        tensor.lerp_(wide(centre[name]), 1.0 - kept)
    square = math.fsum(float(u_of(name).double().square().sum()) for name in point)
    move = math.sqrt(square / sum(tensor.numel() for tensor in point.values()))
    return Fit({name: tensor.to(centre[name].dtype, copy=True) for name, tensor in point.items()}, losses, move)


def one_cycle(step: int, num_steps: int) -> float:
    """The step size relative to its peak: up along a cosine for three tenths of the way, then down to zero.

    >>> [round(one_cycle(step, 10), 2) for step in (0, 2, 3, 6, 9)]
    [0.07, 0.93, 0.99, 0.5, 0.01]
    """
    progress = (step + 0.5) / num_steps
    rise = min(progress / _RISE, 1.0)
    fall = max((progress - _RISE) / (1.0 - _RISE), 0.0)
    return 0.5 * (1.0 - math.cos(math.pi * rise)) * 0.5 * (1.0 + math.cos(math.pi * fall))


def descend(
    point: Sequence[Tensor],
    gradient: Callable[[], tuple[float, Sequence[Tensor]]],
    *,
    num_steps: int,
    step_size: float,
    scales: Sequence[TensorNoise] | None = None,
    project: Callable[[], None] = lambda: None,
    after_step: Callable[[int], None] = lambda step: None,
) -> tuple[float, ...]:
    """Walk downhill from `point`, in place, by Adam with one cycle of the step size; returns the loss at every step.

    Where a loss or gradient is not finite, the step that led there is taken back, the step size is halved and the
    moments start anew. At a start that is not finite there is no direction to go, and the point stays. `project` brings
    the point back into its feasible region, in place. With `scales` the gradients are those in `point / scales`, and
    steps are taken there.
    """
    adam = _Adam(point, scales or [1.0] * len(point))
    losses: list[float] = []
    shrink = 1.0
    for step in range(num_steps):
        loss, gradients = gradient()
        finite = math.isfinite(loss) and all(bool(torch.isfinite(one).all()) for one in gradients)
        losses.append(loss if finite else math.inf)
        if not finite and step == 0:
            break
        with torch.no_grad():
            if finite:
                adam.step(gradients, step_size * shrink * one_cycle(step, num_steps))
            else:
                shrink /= 2.0
                adam.take_back()
            del gradients
            project()
        if finite:
            after_step(step)
    return tuple(losses)


class _Adam:
    """Adam (Kingma and Ba 2015) on some tensors. Its moments tell the last step, which can be taken back."""

    def __init__(self, point: Sequence[Tensor], scales: Sequence[TensorNoise]) -> None:
        self._point, self._scales = point, scales
        self._reset()

    def _reset(self) -> None:
        self._first = [torch.zeros_like(tensor) for tensor in self._point]
        self._second = [torch.zeros_like(tensor) for tensor in self._point]
        self._num_steps, self._last = 0, 0.0

    def step(self, gradients: Sequence[Tensor], step_size: float) -> None:
        """Take in a gradient, and move."""
        for gradient, first, second in zip(gradients, self._first, self._second, strict=True):
            first.lerp_(gradient, 1.0 - _BETAS[0])
            second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1.0 - _BETAS[1])
        self._num_steps += 1
        self._last = step_size
        self._move(-step_size)

    def take_back(self) -> None:
        """Be where the last step began, and forget all gradients."""
        self._move(self._last)
        self._reset()

    def _move(self, step_size: float) -> None:
        if not self._num_steps:
            return
        corrected = [1.0 - beta**self._num_steps for beta in _BETAS]
        for tensor, scale, first, second in zip(self._point, self._scales, self._first, self._second, strict=True):
            root = second.sqrt().div_(math.sqrt(corrected[1])).add_(_EPSILON)
            value = step_size / corrected[0]
            if isinstance(scale, Tensor):
                tensor.addcdiv_(first, root.div_(scale), value=value)
            else:
                tensor.addcdiv_(first, root, value=value * scale)
