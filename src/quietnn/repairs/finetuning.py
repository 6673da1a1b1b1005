"""Plain fine-tuning on the tuning examples: what the posterior has to beat, and nothing else.

It starts from the weights as they came and knows neither the noise nor the prior: Adam, one step size for all weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.repairs.fitting.descent import descend
from quietnn.repairs.fitting.scratch import Loss, Scratch, Split
from quietnn.repairs.fitting.whitened import wide
from quietnn.targets import noisy_weights
from quietnn.weights import NORMALISATION_TYPES, check_module

LEARNING_RATES = (1e-4, 3e-4, 1e-3)
"""Peak step sizes that Adam is usually given for fine-tuning."""


@dataclass(frozen=True)
class FineTuned:
    """The fine-tuned network, the step size that held-out examples chose, and the cost."""

    model: nn.Module
    learning_rate: float
    held_out_loss: dict[float, float]
    num_passes: float


@torch.inference_mode(False)
def finetune(
    model: nn.Module,
    loss: Loss,
    num_examples: int,
    *,
    learning_rates: Sequence[float] = LEARNING_RATES,
    num_steps: int = 26,
    held_out: float = 0.2,
    blended: bool = True,
    seed: int = 0,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> FineTuned:
    """Fine-tune the noisy weights with the step size that does best on held-out examples, then on all examples.

    Args:
        model: the network as received; it stays as it is.
        loss: mean loss of the examples at some positions.
        num_examples: how many examples the loss can address.
        learning_rates: peak step sizes to choose from; with one there is nothing to choose and nothing held out.
        num_steps: gradients taken on all examples.
        held_out: fraction of the examples that chooses the step size.
        blended: BatchNorm follows the weights, as for the posterior; otherwise its statistics stay.
        seed: of the split and of the augmentation.
        normalisation: module types whose parameters carry no noise.
    """
    if not learning_rates or min(learning_rates) <= 0:
        raise InvalidConfig(f"learning_rates is {tuple(learning_rates)}; give at least one, all positive")
    received = noisy_weights(model, normalisation=normalisation)
    scratch = Scratch(model, loss, num_examples, blended=blended, normalisation=normalisation)

    def fit(positions: Tensor, learning_rate: float) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        point = {name: wide(tensor).clone() for name, tensor in received.items()}

        def gradient() -> tuple[float, Sequence[Tensor]]:
            value, gradients = scratch.gradient(point, positions, generator)
            return value, [wide(gradients[name]) for name in point]

        descend(list(point.values()), gradient, num_steps=num_steps, step_size=learning_rate)
        return {name: tensor.to(received[name].dtype) for name, tensor in point.items()}

    scores = {}
    if len(learning_rates) > 1:
        split = Split.of(num_examples, held_out, seed=seed)
        for rate in learning_rates:
            candidate = scratch.finish(model, fit(split.fit, rate))
            scores[rate] = scratch.judge_network(candidate, split.held_out)
    best = min(scores, key=lambda rate: scores[rate]) if scores else learning_rates[0]
    finished = scratch.finish(model, fit(torch.arange(num_examples), best))
    check_module(finished, normalisation=normalisation)  # steps that were too long end in infinity
    return FineTuned(finished, best, scores, scratch.num_passes)
