"""Losses of tokens, with one copy of the logits beside themselves on the way back.

A window of 512 tokens over 49,152 words has logits of 100 MB, and PyTorch's cross-entropy holds four tensors of that
size. Here probabilities are made again from the logits, a few tokens at a time, in the memory of the gradient.
"""

from typing import Any

import torch
from torch import Tensor

from quietnn.watching.batch_moments import wide

IGNORED = -100
"""The label of a position that does not count, as torch and transformers have it."""

_TOKENS_AT_ONCE = 32


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each token in nats, of logits (tokens, words); zero where the label does not count.

    >>> token_losses(torch.zeros(2, 4), torch.tensor([2, IGNORED]))                              # log 4
    tensor([1.3863, 0.0000])
    """
    found: Tensor = _TokenLosses.apply(logits, labels)  # type: ignore[no-untyped-call]
    return found


class _TokenLosses(torch.autograd.Function):
    """`log sum exp(logits) - logits[label]`, and `softmax(logits) - one hot(label)` on the way back."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        totals = torch.cat([wide(part).logsumexp(1) for part in torch.split(logits, _TOKENS_AT_ONCE)])
        counts = labels != IGNORED
        own = wide(logits.gather(1, labels.where(counts, 0)[:, None]).squeeze(1))
        ctx.save_for_backward(logits, labels, totals)
        return torch.where(counts, totals - own, 0.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits, labels, totals = ctx.saved_tensors
        counts = labels != IGNORED
        factors = grads[0].where(counts, 0.0)
        gradient = torch.empty_like(logits)
        parts = (
            torch.split(one, _TOKENS_AT_ONCE) for one in (logits, gradient, labels.where(counts, 0), totals, factors)
        )
        for own, out, label, total, factor in zip(*parts, strict=True):
            change = (wide(own) - total[:, None]).exp_()
            change[torch.arange(len(label), device=label.device), label] -= 1.0
            out.copy_(change.mul_(factor[:, None]))
        return gradient, None
