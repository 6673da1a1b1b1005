"""The private copy on which losses and gradients are taken."""

import math
from dataclasses import replace

import pytest
import torch
from tests.repairs.blobs import blobs, plain_net
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import QuietnnError
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.posterior import posterior


def test_a_loss_that_is_never_finite_leaves_the_weights_as_they_came() -> None:
    observation = transmit(plain_net(), wnr_db=0.0, seed=0)
    evidence = Evidence(*blobs())
    result = posterior(
        observation,
        Evidence(
            mean_loss=lambda network, positions, generator: evidence.loss_at(network, positions, generator) * math.nan,
            num_examples=60,
        ),
    )
    assert result.details["chosen"] == "received"
    assert all(math.isinf(value) for value in result.details["held_out_loss"].values())


def test_a_loss_without_a_gradient_or_with_a_shape_is_refused() -> None:
    model = transmit(plain_net(), wnr_db=0.0, seed=0)
    evidence = Evidence(*blobs())
    for wrong in (
        lambda network, positions, generator: evidence.loss_at(network, positions, generator).detach(),
        lambda network, positions, generator: evidence.loss_at(network, positions, generator).expand(3),
    ):
        with pytest.raises(QuietnnError, match="mean loss"):
            posterior(
                model,
                Evidence(mean_loss=wrong, num_examples=60),
            )


def test_a_gradient_in_batches_is_that_of_all_examples_and_passes_are_counted() -> None:
    observation, evidence = transmit(plain_net(), wnr_db=3.0, seed=0), Evidence(*blobs())
    weights, positions = observation.weights, torch.arange(60)
    found = {}
    for size in (60, 7):
        scratch = Scratch(observation, replace(evidence, batch_size=size))
        loss, gradients = scratch.gradient(weights, positions, torch.Generator())
        assert scratch.judge(weights, positions) == pytest.approx(loss, rel=1e-5)
        assert scratch.num_passes == pytest.approx(4.0)
        found[size] = gradients
    for name in weights:
        torch.testing.assert_close(found[7][name], found[60][name], rtol=1e-4, atol=1e-6)
    assert all(one.grad is None for one in observation.model.parameters()), "the caller's network is left alone"


def test_text_comes_in_mini_batches_that_see_all_of_it_and_a_hundred_labels_come_at_once() -> None:
    network, tokens = nn.Linear(2, 2), torch.zeros(64, 30, dtype=torch.int64)
    seen = [3, 5, *range(10, 58)]
    generator = torch.Generator().manual_seed(0)
    cut = Scratch(Observation(network, 0.1), Evidence(torch.zeros(64, 2), tokens, loss=lambda outputs, labels: outputs))
    batches = cut.mini_batches(torch.tensor(seen), generator)
    epoch = torch.cat([next(batches) for _ in range(12)])  # 50 windows, four at a time: a sixteenth of all
    assert len(epoch) == 48
    assert len(set(epoch.tolist())) == 48
    assert set(epoch.tolist()) <= set(seen)
    whole = Scratch(Observation(network, 0.1), Evidence(torch.zeros(64, 2), torch.zeros(64, dtype=torch.int64)))
    assert next(whole.mini_batches(torch.tensor(seen), generator)).tolist() == seen


class _Words(nn.Module):
    """A table of words, one for positions, and a head that is the first table or one of its own."""

    def __init__(self, *, is_tied: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 6, padding_idx=0), nn.Embedding(4, 6)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 11, bias=False)
        if is_tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.words(tokens) + self.places(torch.arange(4)))).flatten(0, 1)
        return out


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_gradient_of_a_table_of_words_is_that_of_the_whole_table(is_tied: bool) -> None:
    torch.manual_seed(0)
    network = _Words(is_tied=is_tied).eval()
    tokens, nexts = torch.randint(0, 11, (6, 4)), torch.randint(0, 11, (24,))

    def loss(network: nn.Module, positions: Tensor, _: object) -> Tensor:
        return nn.functional.cross_entropy(network(tokens[positions]), nexts.view(6, 4)[positions].flatten())

    observation = Observation(network, noise_variance=0.01)
    scratch = Scratch(observation, Evidence(mean_loss=loss, num_examples=6, batch_size=2))
    _, found = scratch.gradient(observation.weights, torch.arange(6), torch.Generator())
    loss(network, torch.arange(6), None).backward()  # type: ignore[no-untyped-call]
    for name, parameter in network.named_parameters():
        if name in found:
            assert parameter.grad is not None
            assert not found[name].is_sparse
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert not network.words.sparse, "the caller's network is left alone"
