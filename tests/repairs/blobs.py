"""Three classes of points in the plane, networks that know them, and losses."""

import torch
from torch import Tensor, nn

from quietnn.repairs.affine import MMSE
from quietnn.repairs.fitting.whitened import Whitened
from quietnn.repairs.grouped import GroupedWeights


class Squared:
    """Half the mean squared error of a network with one output: Gaussian labels of unit variance."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __call__(self, network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        return 0.5 * (network(self.inputs[positions]).squeeze(1) - self.labels[positions]).square().mean()


def gaussian(by_group: GroupedWeights) -> Whitened:
    """The posterior before the examples."""
    return Whitened.of(by_group, by_group.estimate(by_group.denoisers(MMSE)))


def blobs(num_examples: int = 60) -> tuple[Tensor, Tensor]:
    """Three classes of points in the plane of eight inputs."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(num_examples) % 3
    centres = 2 * torch.randn(3, 8, generator=generator)
    return centres[labels] + 0.5 * torch.randn(num_examples, 8, generator=generator), labels


def trained(*layers: nn.Module) -> nn.Module:
    """A network that knows the blobs."""
    torch.manual_seed(0)
    network = nn.Sequential(*layers)
    inputs, labels = blobs(300)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimiser.step()
    return network.eval()


def plain_net() -> nn.Module:
    return trained(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def norm_net() -> nn.Module:
    return trained(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
