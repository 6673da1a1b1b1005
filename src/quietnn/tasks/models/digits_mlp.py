"""A perceptron for 8x8 grey images: the cheapest network with normalisation layers."""

from torch import Tensor, nn


class DigitsMLP(nn.Module):
    """Two hidden layers with BatchNorm and a linear head.

    >>> sum(parameter.numel() for parameter in DigitsMLP().parameters())
    9098
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, width, bias=False)
        self.bn1 = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, width, bias=False)
        self.bn2 = nn.BatchNorm1d(width)
        self.fc3 = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 1, 8, 8) to logits (batch, 10)."""
        x = self.bn1(self.fc1(images.flatten(1))).relu()
        x = self.bn2(self.fc2(x)).relu()
        logits: Tensor = self.fc3(x)
        return logits
