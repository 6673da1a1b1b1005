"""Layers that answer from memory, and never wrongly."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.channels.transmit import transmit
from quietnn.observation import observe
from quietnn.repairs.temperatures.judge import Memory
from quietnn.repairs.temperatures.tune import tune
from quietnn.score import Score


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 2)
    return nn.Sequential(*layers).eval()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("changed", [0, 3, 5])
def test_only_what_follows_a_change_is_computed_again(network: nn.Sequential, images: Tensor, changed: int) -> None:
    memory = Memory()
    with memory:
        network(images)
    network[changed].weight.mul_(1.5)
    expected, before = network(images), memory.num_computed
    with memory:
        found = network(images)
    assert torch.equal(found, expected)
    assert memory.num_computed - before == {0: 3, 3: 2, 5: 1}[changed]


@torch.no_grad()
def test_other_inputs_and_changes_in_place_are_noticed(network: nn.Sequential, images: Tensor) -> None:
    memory = Memory()
    with memory:
        first = network(images)
    first.add_(1)  # the caller may do to a result what it likes
    with memory:
        assert torch.equal(network(images), network(images.clone()))
    images[0] += 1
    expected = network(images)
    with memory:
        assert torch.equal(network(images), expected)


@torch.no_grad()
def test_a_memory_too_small_forgets_and_stays_right(network: nn.Sequential, images: Tensor) -> None:
    memory, expected = Memory(limit=10), network(images)
    for _ in range(2):
        with memory:
            assert torch.equal(network(images), expected)
    assert memory.num_recalled == 0


def test_gradients_do_not_pass_through_it(network: nn.Sequential, images: Tensor) -> None:
    memory = Memory()
    for _ in range(2):
        with memory:
            network(images).sum().backward()
    assert memory.num_computed == memory.num_recalled == 0
    assert network[0].weight.grad is not None


def test_in_inference_mode_everything_is_computed(network: nn.Sequential, images: Tensor) -> None:
    labels = network(images).argmax(dim=1)
    observed = transmit(network, wnr_db=3.0, seed=0)

    def score(model: nn.Module) -> Score:
        logits = model(images)
        return Score(float((logits.argmax(dim=1) == labels).double().mean()), float(logits.var()), len(labels))

    def search(score: Callable[[nn.Module], Score]) -> object:
        return (
            tune(observe(observed.received, noise_variance=observed.noise_variance), score=score, groups="layerwise")
            .details["search"]
            .trials
        )

    expected = search(torch.no_grad()(score))
    assert search(torch.inference_mode()(score)) == expected
    with torch.inference_mode():
        assert search(score) == expected


def test_a_layerwise_search_finds_the_same_with_and_without(
    network: nn.Sequential, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = network(images).argmax(dim=1)
    observed = transmit(network, wnr_db=3.0, seed=0)

    def score(model: nn.Module) -> Score:
        with torch.no_grad():
            logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        return Score(float((logits.argmax(dim=1) == labels).double().mean()), float(loss), len(labels))

    def search(memory: Callable[[], Memory]) -> object:
        monkeypatch.setattr("quietnn.repairs.temperatures.judge.Memory", memory)
        return (
            tune(observe(observed.received, noise_variance=observed.noise_variance), score=score, groups="layerwise")
            .details["search"]
            .trials
        )

    used = Memory()
    assert search(lambda: used) == search(lambda: Memory(limit=0))
    assert used.num_recalled > 0
