"""The loss of a task's network on examples, in the form that gradients are taken of."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.denoisers.evidence import Augment, Loss, classification_loss
from quietnn.tasks.base import Examples, logits_of
from quietnn.tasks.encoders import by_length, trim

_CHUNK = 25


def loss_on(examples: Examples, augment: Augment | None = None) -> Loss:
    """The cross-entropy on examples; sentences run in chunks of similar length, without needless padding."""
    if not isinstance(examples.inputs, dict) or "attention_mask" not in examples.inputs:
        return classification_loss(examples.inputs, examples.labels, augment=augment)

    def loss(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        chunks = [trim(chunk) for chunk in by_length(examples.take(positions)).batches(_CHUNK)]
        logits = torch.cat([logits_of(network, chunk.inputs) for chunk in chunks])
        return functional.cross_entropy(logits, torch.cat([chunk.labels for chunk in chunks]))

    return loss
