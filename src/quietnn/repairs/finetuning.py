"""Plain fine-tuning on the tuning examples: what the posterior has to beat, and nothing else.

It starts from the weights as they came and knows neither the noise nor the prior: Adam, one step size for all weights.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import Augment, labelled
from quietnn.losses import Losses
from quietnn.observation import observe
from quietnn.repairs.base import Repaired
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.whitened import descend, wide
from quietnn.score import Split
from quietnn.weights import check_module

LEARNING_RATES = (1e-4, 3e-4, 1e-3)
"""Peak step sizes that Adam is usually given for fine-tuning."""


@torch.inference_mode(False)
def finetune(
    what: object,
    inputs: object,
    labels: object = None,
    *,
    loss: Losses | None = None,
    augment: Augment | None = None,
    learning_rates: Sequence[float] = LEARNING_RATES,
    num_steps: int = 26,
    held_out: float = 0.2,
    seed: int = 0,
) -> Repaired:
    """Plain fine-tuning of the noisy weights: the baseline that knows neither the noise nor the prior.

    Args:
        what: the network as received.
        inputs: examples, about a hundred, in any form of `Evidence`.
        labels: class numbers, or whatever `loss` compares outputs with.
        loss: `(outputs, labels)` to one loss for each example; cross-entropy when not given.
        augment: random variants of the inputs that keep their labels.
        learning_rates: peak step sizes to choose from on held-out examples.
        num_steps: gradients taken on all examples.
        held_out: fraction of the examples that chooses the step size.
        seed: of the split and of the augmentation.

    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> finetune(network, torch.rand(20, 4), torch.arange(20) % 2, learning_rates=(1e-3,)).details["learning_rate"]
    0.001
    """
    observation = observe(what)
    evidence = labelled(inputs, labels, "finetune", loss=loss, augment=augment)
    check_is(learning_rates, Sequence, "learning_rates", "give several to choose from: learning_rates=(1e-3, 1e-2)")
    if not learning_rates or min(learning_rates) <= 0:
        raise InvalidConfig(f"learning_rates is {tuple(learning_rates)}; give at least one, all positive")
    model, received, num_examples = observation.model, observation.weights, len(evidence)
    scratch = Scratch(observation, evidence, blended=True)

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
    check_module(finished)  # steps that were too long end in infinity
    return Repaired(finished, "finetuned", scratch.num_passes, {"learning_rate": best, "held_out_loss": scores})
