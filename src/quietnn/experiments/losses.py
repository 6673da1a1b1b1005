"""A task's examples in the forms that gradients are taken of and that `auto` judges by."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import Inputs, outputs_of
from quietnn.repairs.fitting.scratch import Augment, Loss, classification_loss
from quietnn.repairs.labelled import Labelled
from quietnn.tasks.base import Examples
from quietnn.tasks.encoders import by_length, lengths, trim

_CHUNK = 25


def loss_on(examples: Examples, augment: Augment | None = None) -> Loss:
    """The cross-entropy on examples; sentences run in chunks of similar length, without needless padding."""
    if not isinstance(examples.inputs, dict) or "attention_mask" not in examples.inputs:
        return classification_loss(examples.inputs, examples.labels, augment=augment)

    def loss(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        chunks = [trim(chunk) for chunk in by_length(examples.take(positions)).batches(_CHUNK)]
        logits = torch.cat([outputs_of(network, chunk.inputs) for chunk in chunks])
        return functional.cross_entropy(logits, torch.cat([chunk.labels for chunk in chunks]))

    return loss


def labelled(examples: Examples, augment: Augment | None = None) -> Labelled:
    """The examples as `auto` takes them."""
    is_text = isinstance(examples.inputs, dict) and "attention_mask" in examples.inputs
    return Labelled(examples.inputs, examples.labels, augment=augment, run=_run_sentences if is_text else outputs_of)


def _run_sentences(network: nn.Module, inputs: Inputs) -> Tensor:
    """The logits of sentences in their own order, run in chunks of similar length without needless padding."""
    assert isinstance(inputs, dict)
    everything = Examples(inputs, torch.zeros(len(inputs["attention_mask"]), dtype=torch.int64))
    order = lengths(everything).argsort(stable=True)
    chunks = [trim(everything.take(positions)) for positions in torch.split(order, _CHUNK)]
    return torch.cat([outputs_of(network, chunk.inputs) for chunk in chunks])[order.argsort()]
