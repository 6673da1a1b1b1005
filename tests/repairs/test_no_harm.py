"""Without labels `auto` does no harm to a pre-norm transformer, which plain MMSE does."""

import math

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.tasks.digits import examples

WIDTH, NUM_DRAWS, WNR_DB = 32, 16, 2.0


class Block(nn.Module):
    """`x + f(norm(x))`: attention, then two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.mixed(self.norm1(tokens)).chunk(3, dim=-1)
        tokens = tokens + self.out(nn.functional.scaled_dot_product_attention(query, key, value))
        return tokens + self.mlp(self.norm2(tokens))


class ViT(nn.Module):
    """The eight rows of a digit are its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.positions = nn.Linear(8, WIDTH), nn.Parameter(0.1 * torch.randn(8, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.blocks(self.rows(images.reshape(-1, 8, 8)) + self.positions)
        return self.head(self.norm(tokens).mean(1))


@pytest.fixture(scope="module")
def vit() -> nn.Module:
    part = examples("train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ViT()
        optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(12):
            for chosen in torch.randperm(1000).split(50):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(part.inputs[chosen]), part.labels[chosen]).backward()
                optimiser.step()
    return model.eval()


def right(model: nn.Module) -> Tensor:
    part = examples("test")
    with torch.no_grad():
        return (model(part.inputs).argmax(1) == part.labels).double()


def gain(vit: nn.Module, repair: object) -> tuple[float, float]:
    """What a repair gains over the received network, and its standard error over draws and examples."""
    differences = []
    for seed in range(NUM_DRAWS):
        observation = quietnn.transmit(vit, wnr_db=WNR_DB, seed=seed)
        repaired = repair(observation.received, observation.noise_variance)
        differences.append(right(repaired) - right(observation.received))
    found = torch.stack(differences)
    errors = [float(part.std()) / math.sqrt(len(part)) for part in (found.mean(0), found.mean(1))]
    return float(found.mean()), math.hypot(*errors)


def test_plain_mmse_harms_it(vit: nn.Module) -> None:
    """What makes the tests below worth running."""
    assert float(right(vit).mean()) > 0.8
    mean, error = gain(vit, lambda model, noise: quietnn.denoise(model, noise_variance=noise).model)
    assert mean < -2 * error


@pytest.mark.parametrize("num_inputs", [0, 100])
def test_auto_without_labels_does_not(vit: nn.Module, num_inputs: int) -> None:
    inputs = examples("tuning").inputs[:num_inputs] if num_inputs else None
    mean, error = gain(vit, lambda model, noise: quietnn.auto(model, inputs, noise_variance=noise).model)
    assert mean >= -error
