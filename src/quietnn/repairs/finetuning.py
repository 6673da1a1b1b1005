"""Plain fine-tuning on the tuning examples, of all weights or of low rank: what the posterior has to beat.

It knows neither the noise nor the prior: Adam, one step size for all weights. It starts from the received weights or,
to tell what a start is worth, from the network that the posterior would start from. With `pull`, all weights are drawn
back to where they started, L2-SP (Li, Grandvalet and Davoine 2018):

    mean loss + pull / 2 |w - w_start|^2
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import labelled
from quietnn.losses import Losses
from quietnn.noise import NoiseVariance
from quietnn.observation import observe
from quietnn.repairs.base import Repaired
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import as_start
from quietnn.repairs.fitting.whitened import descend
from quietnn.repairs.posterior import chosen_start
from quietnn.score import Split
from quietnn.variants import Variants
from quietnn.watching.batch_moments import wide
from quietnn.weights import Weights, check_module

LEARNING_RATES = (1e-4, 3e-4, 1e-3)
"""Peak step sizes that Adam is usually given for fine-tuning."""

LOW_RANK_LEARNING_RATES = (1e-3, 3e-3, 1e-2)
"""Those for low rank, ten times as large as usual there."""

PULL = 0.1
"""That of L2-SP in its paper."""


@torch.inference_mode(False)
def finetune(
    what: object,
    inputs: object,
    labels: object = None,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    loss: Losses | None = None,
    augment: Variants = None,
    learning_rates: Sequence[float] | None = None,
    rank: int | None = None,
    start: Literal["received", "repaired"] = "received",
    pull: float = 0.0,
    num_steps: int = 26,
    held_out: float = 0.2,
    seed: int = 0,
) -> Repaired:
    """Fine-tune the noisy weights: the baseline that uses neither the noise nor the prior.

    Args:
        what: the network as received.
        inputs: examples, about a hundred, in any form of `Evidence`.
        labels: class numbers, or what else `loss` compares outputs with.
        noise_variance: `sigma_z^2`, where the start is to be repaired; fine-tuning itself does not use it.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        loss: a function of `(outputs, labels)` that returns one loss per example; by default cross-entropy.
        augment: random variants of the inputs that keep their labels.
        learning_rates: peak step sizes to choose from on held-out examples.
        rank: LoRA (Hu et al. 2022): `R + B A` in place of each matrix `R`, of this rank; all else stays.
        start: `"received"`, or `"repaired"`: where the posterior would start with these examples.
        pull: how strongly all weights are drawn back to the start, as in L2-SP.
        num_steps: gradients taken on all examples; as many more as the posterior takes where each sees a mini-batch.
        held_out: fraction of the examples that chooses the step size.
        seed: of the split and of the augmentation.

    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> finetune(network, torch.rand(20, 4), torch.arange(20) % 2, learning_rates=(1e-3,)).details["learning_rate"]
    0.001
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = labelled(inputs, labels, "finetune", loss=loss, augment=augment)
    if learning_rates is None:
        learning_rates = LEARNING_RATES if rank is None else LOW_RANK_LEARNING_RATES
    check_is(learning_rates, Sequence, "learning_rates", "give several to choose from: learning_rates=(1e-3, 1e-2)")
    if not learning_rates or min(learning_rates) <= 0:
        raise InvalidConfig(f"learning_rates is {tuple(learning_rates)}; give at least one, all positive")
    if start not in ("received", "repaired"):
        raise InvalidConfig(f"start is {start!r}; give start='received', or start='repaired'")
    if not (pull >= 0 and math.isfinite(pull)):
        raise InvalidConfig(f"pull is {pull}; it must be zero or more: pull={PULL}")
    num_examples = len(evidence)
    scratch = Scratch(observation, evidence, blended=True)
    num_steps = round(num_steps * math.sqrt(scratch.num_batches))
    begun = as_start(observation.model, observation)
    if start == "repaired":
        begun = chosen_start(scratch, observation, evidence, seed=seed)
        if begun.is_anchor:
            scratch.anchor(begun.network)
    model, first = begun.network, begun.weights

    def fit(positions: Tensor, learning_rate: float) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        moved = _All(first) if rank is None else _LowRank(first, rank, seed)
        batches = scratch.mini_batches(positions, generator)

        def gradient() -> tuple[float, Sequence[Tensor]]:
            weights = moved.weights()
            value, gradients = scratch.gradient(weights, next(batches), generator)
            if pull:
                gradients = {name: one + pull * (weights[name] - first[name]) for name, one in gradients.items()}
            return value, moved.pull_back(gradients)

        descend(moved.point, gradient, num_steps=num_steps, step_size=learning_rate)
        return {name: tensor.to(first[name].dtype) for name, tensor in moved.weights().items()}

    scores = {}
    if len(learning_rates) > 1:
        split = Split.of(num_examples, held_out, seed=seed)
        for rate in learning_rates:
            candidate = scratch.finish(model, fit(split.fit, rate))
            scores[rate] = float(scratch.judge_parts(candidate, [split.held_out]))
    best = min(scores, key=lambda rate: scores[rate]) if scores else learning_rates[0]
    finished = scratch.finish(model, fit(torch.arange(num_examples), best))
    check_module(finished)  # steps that were too long end in infinity
    name = "l2_sp" if pull else "finetuned" if rank is None else "lora"
    return Repaired(
        finished,
        f"{name}_started" if start == "repaired" and not pull else name,
        scratch.num_passes,
        {"learning_rate": best, "held_out_loss": scores},
    )


class _All:
    """All weights as the point."""

    def __init__(self, received: Weights) -> None:
        self._moved = {name: wide(tensor).clone() for name, tensor in received.items()}
        self.point = list(self._moved.values())

    def weights(self) -> Weights:
        return self._moved

    def pull_back(self, gradients: Mapping[str, Tensor]) -> list[Tensor]:
        return [wide(gradients[name]) for name in self._moved]


class _LowRank:
    """Two thin matrices for every matrix as the point: the one that comes first random, the other zero."""

    def __init__(self, received: Weights, rank: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._received = received
        self._pairs: dict[str, tuple[Tensor, Tensor]] = {}
        for name, tensor in received.items():
            rows = wide(tensor).flatten(1) if tensor.dim() > 1 else tensor[None]
            if min(rows.shape) > rank:
                drawn = torch.randn(rank, rows.shape[1], generator=generator, dtype=rows.dtype)
                down = drawn.to(rows.device) / math.sqrt(rows.shape[1])
                self._pairs[name] = down, rows.new_zeros(len(rows), rank)
        self.point = [one for pair in self._pairs.values() for one in pair]

    def weights(self) -> Weights:
        """`R + B A`."""
        moved = dict(self._received)
        for name, (down, up) in self._pairs.items():
            moved[name] = wide(moved[name]) + (up @ down).view_as(moved[name])
        return moved

    def pull_back(self, gradients: Mapping[str, Tensor]) -> list[Tensor]:
        """The gradient in each thin matrix, from that in the product."""
        found = []
        for name, (down, up) in self._pairs.items():
            rows = wide(gradients[name]).flatten(1)
            found += [up.T @ rows, rows @ down.T]
        return found
