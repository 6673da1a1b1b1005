"""Losses of tokens: those of PyTorch, and their gradients, with less memory."""

import pytest
import torch
from torch.nn import functional

from quietnn.tasks.token_losses import IGNORED, token_losses


def example(num_tokens: int = 70, num_words: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(num_tokens, num_words, generator=generator)
    labels = torch.randint(num_words, (num_tokens,), generator=generator)
    labels[::7] = IGNORED
    return logits, labels


@pytest.mark.parametrize("num_tokens", [1, 32, 70])
def test_losses_and_gradients_are_those_of_pytorch(num_tokens: int) -> None:
    logits, labels = example(num_tokens)
    weights = torch.linspace(-1.0, 2.0, num_tokens)
    gradients = []
    for losses_of in (token_losses, lambda *both: functional.cross_entropy(*both, reduction="none")):
        leaf = logits.clone().requires_grad_()
        losses = losses_of(leaf, labels)
        (losses * weights).sum().backward()
        gradients.append((losses.detach(), leaf.grad))
    for own, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-6)
    assert bool((gradients[0][0][::7] == 0).all())


def test_sixteen_bits_are_summed_in_more() -> None:
    logits, labels = example(40, 30_000)
    leaf = logits.bfloat16().requires_grad_()
    losses = token_losses(leaf, labels)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(
        losses.detach(), functional.cross_entropy(leaf.detach().float(), labels, reduction="none"), rtol=1e-5, atol=1e-5
    )
    losses.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.bfloat16


def test_what_the_noise_has_blown_up_is_not_a_number() -> None:
    logits = torch.tensor([[0.0, torch.inf], [0.0, 1.0]])
    assert token_losses(logits, torch.tensor([0, 0])).isfinite().tolist() == [False, True]
    assert token_losses(torch.tensor([[0.0, torch.nan]]), torch.tensor([0])).isnan().all()
