"""Adaptation by entropy: TENT against its few lines, and what EATA and SAR add to it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.repairs.entropy import EATA, SAR, TENT, Adaptation, adapt

INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))


def network(norm: type[nn.Module] = nn.BatchNorm1d) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), norm(8), nn.ReLU(), nn.Linear(8, 3)).eval()


def entropy(logits: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Categorical(logits=logits).entropy()


def test_tent_is_adam_on_the_entropy_with_the_statistics_of_the_batch() -> None:
    plain = network().train()
    moving = [plain[1].weight, plain[1].bias]
    optimiser = torch.optim.Adam(moving, lr=1e-3)
    for _ in range(5):
        optimiser.zero_grad()
        entropy(plain(INPUTS)).mean().backward()
        optimiser.step()
    result = adapt(network(), INPUTS, replace(TENT, num_steps=5))
    assert torch.allclose(result.model[1].weight, plain[1].weight, atol=1e-6)
    assert torch.allclose(result.model[1].bias, plain[1].bias, atol=1e-6)
    assert torch.allclose(result.model[1].running_mean, plain[0](INPUTS).mean(0), atol=1e-5)
    assert result.passes == 5 * 3 + 1
    assert result.details["num_used"] == 40


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm])
@pytest.mark.parametrize("settings", [TENT, replace(EATA, margin=0.99, redundancy=1.0), replace(SAR, margin=0.99)])
def test_outputs_become_surer_and_only_normalisation_moves(norm: type[nn.Module], settings: Adaptation) -> None:
    given = network(norm)
    made = adapt(given, INPUTS, replace(settings, learning_rate=0.01)).model
    before = adapt(given, INPUTS, replace(settings, learning_rate=1e-12)).model
    with torch.no_grad():
        assert entropy(made(INPUTS)).mean() < entropy(before(INPUTS)).mean()
    assert torch.equal(made[0].weight, given[0].weight)
    assert torch.equal(made[3].weight, given[3].weight)
    assert not torch.equal(made[1].weight, given[1].weight)
    assert [one.requires_grad for one in made.parameters()] == [one.requires_grad for one in given.parameters()]
    assert made.training == given.training


def test_unsure_inputs_are_left_out() -> None:
    none = adapt(network(), INPUTS, replace(TENT, margin=1e-6))
    assert none.details["num_used"] == 0
    assert torch.equal(none.model[1].weight, network()[1].weight)
    some = adapt(network(), INPUTS, replace(TENT, margin=0.9, num_steps=1))
    with torch.no_grad():
        sure = entropy(network().train()(INPUTS)) < 0.9 * torch.tensor(3.0).log()
    assert some.details["num_used"] == int(sure.sum())


def test_inputs_like_those_before_are_left_out() -> None:
    once = adapt(network(), INPUTS, replace(TENT, redundancy=0.5, num_steps=1))
    twice = adapt(network(), INPUTS, replace(TENT, redundancy=0.5, num_steps=2))
    assert once.details["num_used"] == 40
    assert twice.details["num_used"] < 40


def test_important_parameters_are_held() -> None:
    free = adapt(network(), INPUTS, Adaptation(0.01, margin=0.99)).model
    held = adapt(network(), INPUTS, Adaptation(0.01, margin=0.99, anchor=1000.0)).model
    start = network()[1].weight
    assert (held[1].weight - start).norm() < 0.5 * (free[1].weight - start).norm()


def test_a_collapse_starts_again() -> None:
    """Every mean entropy is below the largest there can be, so each step is undone."""
    made = adapt(network(), INPUTS, replace(SAR, margin=0.99, collapse=2.0, learning_rate=0.1)).model
    assert torch.equal(made[1].weight, network()[1].weight)


def test_sharpness_costs_a_second_gradient() -> None:
    result = adapt(network(), INPUTS, replace(SAR, margin=1.1, num_steps=4))
    assert result.passes == 4 * 6 + 1


def test_what_cannot_be_adapted_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="no normalisation layer"):
        adapt(nn.Linear(4, 3), INPUTS)
    with pytest.raises(InvalidConfig, match="learning_rate is 0"):
        Adaptation(0.0)
    with pytest.raises(InvalidConfig, match="two classes"):
        adapt(nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1)), INPUTS)
