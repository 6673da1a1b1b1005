"""Baselines without labels and without gradients, against their formulas."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from quietnn.errors import InvalidConfig
from quietnn.repairs.peers import adapt_statistics, t3a

INPUTS = torch.rand(30, 4, generator=torch.Generator().manual_seed(1))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()


def test_the_surest_inputs_of_a_class_join_its_weights() -> None:
    given = network()
    with torch.no_grad():
        features = given[:3](INPUTS)
        logits = given[3](features)
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    label = int(logits.argmax(1).mode().values)
    mine = [int(one) for one in entropy.argsort() if int(logits[one].argmax()) == label][:2]
    expected = functional.normalize(torch.stack([given[3].weight[label].detach(), *features[mine]]), dim=1).sum(0)
    result = t3a(given, INPUTS, supports=2)
    assert torch.allclose(result.model[3].weight[label], functional.normalize(expected, dim=0), atol=1e-6)
    assert result.passes == 1.0
    assert torch.equal(result.model[0].weight, given[0].weight)


def test_batches_are_as_good_as_all_at_once() -> None:
    whole, parts = t3a(network(), INPUTS).model, t3a(network(), list(INPUTS.split(7))).model
    assert torch.allclose(whole[3].weight, parts[3].weight, atol=1e-6)


def test_a_network_without_a_last_linear_layer_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="last linear layer"):
        t3a(nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), INPUTS)


def test_statistics_are_blended_by_the_number_of_inputs() -> None:
    given = network()
    made = adapt_statistics(given, INPUTS).model
    entering = given[0](INPUTS).detach()
    share = 30 / (30 + 16)
    assert torch.allclose(made[1].running_mean, share * entering.mean(0), atol=1e-6)
    assert torch.allclose(made[1].running_var, (1 - share) + share * entering.var(0, unbiased=False), atol=2e-2)
