"""A classifier in miniature with a BatchNorm, made by least squares, and its data."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Miniature:
    """A clean network and labelled data that it gets right."""

    model: nn.Sequential
    inputs: Tensor
    labels: Tensor


def make(norm: nn.Module, *, num_examples: int = 60) -> Miniature:
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.randn(3, 8, generator=generator)
    labels = torch.arange(num_examples) % 3
    inputs = prototypes[labels] + 0.3 * torch.randn(num_examples, 8, generator=generator)
    first, head = nn.Linear(8, 24), nn.Linear(24, 3)
    with torch.no_grad():
        first.weight.copy_(torch.randn(24, 8, generator=generator) / 3)
        first.bias.zero_()
        if isinstance(norm, nn.BatchNorm1d):
            made = first(inputs)
            norm.running_mean.copy_(made.mean(0))
            norm.running_var.copy_(made.var(0))
        model = nn.Sequential(first, norm, nn.ReLU(), head).eval()
        features = torch.cat([model[:3](inputs), torch.ones(num_examples, 1)], dim=1)
        targets = 6.0 * nn.functional.one_hot(labels, 3).float()
        solution = torch.linalg.lstsq(features, targets).solution
        head.weight.copy_(solution[:-1].T)
        head.bias.copy_(solution[-1])
    return Miniature(model, inputs, labels)


@pytest.fixture(scope="session")
def miniature() -> Miniature:
    return make(nn.BatchNorm1d(24))


@pytest.fixture(scope="session")
def layer_normed() -> Miniature:
    return make(nn.LayerNorm(24))
