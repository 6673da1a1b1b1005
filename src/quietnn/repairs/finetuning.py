"""Plain fine-tuning on the tuning examples, of all weights or of low rank: what the posterior has to beat.

It starts from the received weights and knows neither the noise nor the prior: Adam, one step size for all weights.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import labelled
from quietnn.losses import Losses
from quietnn.observation import observe
from quietnn.repairs.base import Repaired
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.whitened import descend
from quietnn.score import Split
from quietnn.variants import Variants
from quietnn.watching.batch_moments import wide
from quietnn.weights import Weights, check_module

LEARNING_RATES = (1e-4, 3e-4, 1e-3)
"""Peak step sizes that Adam is usually given for fine-tuning."""

LOW_RANK_LEARNING_RATES = (1e-3, 3e-3, 1e-2)
"""Those for low rank, ten times as large as usual there."""


@torch.inference_mode(False)
def finetune(
    what: object,
    inputs: object,
    labels: object = None,
    *,
    loss: Losses | None = None,
    augment: Variants = None,
    learning_rates: Sequence[float] | None = None,
    rank: int | None = None,
    num_steps: int = 26,
    held_out: float = 0.2,
    seed: int = 0,
) -> Repaired:
    """Fine-tune the noisy weights: the baseline that uses neither the noise nor the prior.

    Args:
        what: the network as received.
        inputs: examples, about a hundred, in any form of `Evidence`.
        labels: class numbers, or what else `loss` compares outputs with.
        loss: a function of `(outputs, labels)` that returns one loss per example; by default cross-entropy.
        augment: random variants of the inputs that keep their labels.
        learning_rates: peak step sizes to choose from on held-out examples.
        rank: LoRA (Hu et al. 2022): `R + B A` in place of each matrix `R`, of this rank; all else stays.
        num_steps: gradients taken on all examples; as many more as the posterior takes where each sees a mini-batch.
        held_out: fraction of the examples that chooses the step size.
        seed: of the split and of the augmentation.

    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> finetune(network, torch.rand(20, 4), torch.arange(20) % 2, learning_rates=(1e-3,)).details["learning_rate"]
    0.001
    """
    observation = observe(what)
    evidence = labelled(inputs, labels, "finetune", loss=loss, augment=augment)
    if learning_rates is None:
        learning_rates = LEARNING_RATES if rank is None else LOW_RANK_LEARNING_RATES
    check_is(learning_rates, Sequence, "learning_rates", "give several to choose from: learning_rates=(1e-3, 1e-2)")
    if not learning_rates or min(learning_rates) <= 0:
        raise InvalidConfig(f"learning_rates is {tuple(learning_rates)}; give at least one, all positive")
    model, received, num_examples = observation.model, observation.weights, len(evidence)
    scratch = Scratch(observation, evidence, blended=True)
    num_steps = round(num_steps * math.sqrt(scratch.num_batches))

    def fit(positions: Tensor, learning_rate: float) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        moved = _All(received) if rank is None else _LowRank(received, rank, seed)
        batches = scratch.mini_batches(positions, generator)

        def gradient() -> tuple[float, Sequence[Tensor]]:
            value, gradients = scratch.gradient(moved.weights(), next(batches), generator)
            return value, moved.pull_back(gradients)

        descend(moved.point, gradient, num_steps=num_steps, step_size=learning_rate)
        return {name: tensor.to(received[name].dtype) for name, tensor in moved.weights().items()}

    scores = {}
    if len(learning_rates) > 1:
        split = Split.of(num_examples, held_out, seed=seed)
        for rate in learning_rates:
            candidate = scratch.finish(model, fit(split.fit, rate))
            scores[rate] = float(scratch.judge_parts(candidate, [split.held_out]))
    best = min(scores, key=lambda rate: scores[rate]) if scores else learning_rates[0]
    finished = scratch.finish(model, fit(torch.arange(num_examples), best))
    check_module(finished)  # steps that were too long end in infinity
    return Repaired(
        finished,
        "finetuned" if rank is None else "lora",
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
