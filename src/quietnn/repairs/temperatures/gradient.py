"""Temperatures for every group at once, by the gradient of a loss through the network (docs/how-it-works/posterior.md).

The steps are those of `quietnn.repairs.temperatures.steps`: `log theta`, held at or above MMSE's (`lambda' = 0`), and
the shift, for each group, with `g` the gradient in the group's weights,

    w_hat = mu_w + theta (r - mu_w + shift sigma_z)
    d loss / d log theta = theta <g, r - mu_w + shift sigma_z>        d loss / d shift = theta sigma_z <g, 1>

`sigma_z` may differ from group to group, but not within one: then every weight would have a `theta` of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.affine import ML, Temperatures
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.whitened import descend
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures, grouped
from quietnn.repairs.temperatures.steps import Scale, fan_in, scales
from quietnn.score import Split
from quietnn.weights import Partition


@dataclass(frozen=True)
class GradientSettings:
    """How the temperatures are sought.

    The peak step is that of `log theta`, and that of the shift in units of `1 / sqrt(inputs of a unit)`: by one of
    these all weights of a unit together move its output about as far as the noise did.
    """

    num_steps: int = 40
    step_size: float = 0.05
    held_out: float = 0.2  # fraction of the examples that decides where to stop; with 0 all are fitted to and decide
    judge_every: int = 4  # steps between two looks at the held-out examples

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        for name in ("num_steps", "judge_every"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if not 0 < self.step_size < math.inf:
            raise InvalidConfig(f"step_size is {self.step_size}; it must be positive, 0.05 changes theta by 5 % a step")


DEFAULT = GradientSettings()

LAYERWISE = GradientSettings(num_steps=120, step_size=0.15, held_out=0.0, judge_every=10)
"""Steps enough for the layers: 40 smaller ones stop half-way. Two numbers a layer are few against a hundred examples,
so none are held out: ResNet20 at 4 dB, two development draws, 100 such steps, training images that were not tuned on:
54.2 % and 60.8 %; with a fifth held out 51.0 % and 59.4 %; as received 31.2 % and 30.2 %."""


@dataclass(frozen=True)
class GradientTuning:
    """The temperatures that did best on the held-out examples, and the way there.

    The losses on held-out examples are by number of steps; the start is step 0, so the best is never worse than that.
    """

    temperatures: GroupTemperatures
    held_out_loss: Mapping[int, float]
    fit_loss: tuple[float, ...]
    num_passes: float


def tune_by_gradient(
    observation: Observation[Any, Any],
    evidence: Evidence,
    *,
    groups: str | Partition = "layerwise",
    start: Temperatures | GroupTemperatures = ML,
    settings: GradientSettings = DEFAULT,
    seed: int = 0,
) -> GradientTuning:
    """Descend in the temperatures of all groups together, and stop where held-out examples say so.

    The seed is that of the split and of the augmentation. Noise that differs within a group is refused.
    """
    num_examples = len(evidence)
    by_group = grouped(observation, groups)
    _check_even(by_group)
    pairs = dict.fromkeys(by_group.groups, start) if isinstance(start, Temperatures) else dict(start)
    by_group.denoisers(pairs)  # refuses a start that is infeasible or lacks a group
    everything = torch.arange(num_examples)
    split = Split.of(num_examples, settings.held_out, seed=seed) if settings.held_out else Split(everything, everything)
    if by_group.noise_variance == 0:
        return GradientTuning(dict.fromkeys(by_group.groups, ML), {0: math.nan}, (), 0.0)
    scratch = Scratch(observation, evidence)
    path = _Path(by_group, pairs)
    generator = torch.Generator().manual_seed(seed)
    judged: dict[int, tuple[float, GroupTemperatures]] = {}

    def look(num_steps: int) -> None:
        value = scratch.judge(path.weights(), split.held_out)
        judged[num_steps] = value, path.temperatures() if num_steps else pairs

    def after_step(step: int) -> None:
        if (step + 1) % settings.judge_every == 0 or step + 1 == settings.num_steps:
            look(step + 1)

    def gradient() -> tuple[float, Sequence[Tensor]]:
        value, gradients = scratch.gradient(path.weights(), split.fit, generator)
        return value, path.pull_back(gradients)

    look(0)
    hooks: dict[str, Any] = {"project": path.project, "after_step": after_step}
    fit_loss = descend(path.point, gradient, num_steps=settings.num_steps, step_size=settings.step_size, **hooks)
    best = min(judged.values(), key=lambda pair: pair[0])[1]
    return GradientTuning(best, {step: pair[0] for step, pair in judged.items()}, fit_loss, scratch.num_passes)


class _Path:
    """The multipliers and shifts of all groups as one point, the weights they give, and the gradient in them."""

    def __init__(self, by_group: GroupedWeights, start: GroupTemperatures) -> None:
        self._by_group = by_group
        self._start = start
        # A group that shows no signal, or has no noise, has no multiplier to move; it stays as it starts.
        self._scales = {
            group: scale
            for group, scale in scales(by_group).items()
            if scale.statistics.variance > 0 and scale.noise_variance > 0
        }
        self._unit = {group: 1.0 / math.sqrt(_fan_in(by_group, group)) for group in self._scales}
        floor = [math.log(scale.smallest_theta) for scale in self._scales.values()]
        thetas = [scale.theta(start[group]) for group, scale in self._scales.items()]
        shifts = [scale.shift(start[group]) / self._unit[group] for group, scale in self._scales.items()]
        self._floor, theta, shift = (torch.tensor(part, dtype=torch.float64) for part in (floor, thetas, shifts))
        self.point = [theta.log(), shift]

    def _steps(self) -> dict[str, tuple[Scale, float, float]]:
        """Scale, multiplier and shift of each group that moves."""
        thetas, shifts = self.point[0].exp().tolist(), self.point[1].tolist()
        return {
            group: (scale, theta, shift * self._unit[group])
            for (group, scale), theta, shift in zip(self._scales.items(), thetas, shifts, strict=True)
        }

    def temperatures(self) -> GroupTemperatures:
        """The point as temperatures."""
        moved = {group: scale.temperatures(theta, shift) for group, (scale, theta, shift) in self._steps().items()}
        return {**self._start, **moved}

    def weights(self) -> dict[str, Tensor]:
        """The denoised weights at the point."""
        return self._by_group.estimate(self._by_group.denoisers(self.temperatures()))

    def pull_back(self, gradients: Mapping[str, Tensor]) -> list[Tensor]:
        """The gradient in the point, from that in the weights."""
        in_log_theta, in_shift = [], []
        for group, (scale, theta, shift) in self._steps().items():
            members = self._by_group.groups[group]
            along = math.fsum(float(torch.sum(gradients[name], dtype=torch.float64)) for name in members)
            inner = math.fsum(
                float(torch.sum(gradients[name] * self._by_group.weights[name], dtype=torch.float64))
                for name in members
            )
            noise_std = math.sqrt(scale.noise_variance)
            offset = shift * noise_std - scale.statistics.mean
            in_log_theta.append(theta * (inner + offset * along))
            in_shift.append(theta * noise_std * self._unit[group] * along)
        return [torch.tensor(part, dtype=torch.float64) for part in (in_log_theta, in_shift)]

    def project(self) -> None:
        """Back to `lambda' >= 0`."""
        torch.maximum(self.point[0], self._floor, out=self.point[0])


def _check_even(by_group: GroupedWeights) -> None:
    """Refuse noise that differs within a group."""
    if by_group.noise is None:
        return
    for group, members in by_group.groups.items():
        values = [torch.as_tensor(by_group.noise[name]) for name in members]
        if min(float(value.min()) for value in values) < max(float(value.max()) for value in values):
            raise InvalidConfig(
                f"the noise differs within group {group!r}, whose weights share one multiplier; give "
                "quietnn.noise.noise_by_group(noise_variance, weights, groups) here and to denoise, or smaller groups"
            )


def _fan_in(by_group: GroupedWeights, group: str) -> int:
    """How many inputs a unit of the group's largest tensor has."""
    tensor = max((by_group.weights[name] for name in by_group.groups[group]), key=lambda weight: weight.numel())
    return fan_in(tensor.shape)
