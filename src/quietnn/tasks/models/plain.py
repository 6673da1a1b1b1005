"""Plain networks with BatchNorm, cheap enough to train hundreds of times on a laptop."""

from torch import Tensor, nn


class PlainCNN(nn.Module):
    """For small images: three convolutions with BatchNorm, the first two halving the resolution, and a linear head.

    >>> sum(parameter.numel() for parameter in PlainCNN().parameters())
    57802
    """

    def __init__(self, channels: tuple[int, int, int] = (32, 64, 64), *, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels[0], 4, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        self.conv2 = nn.Conv2d(channels[0], channels[1], 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels[1])
        self.conv3 = nn.Conv2d(channels[1], channels[2], 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels[2])
        self.linear = nn.Linear(channels[2], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, num_classes)."""
        x = self.bn1(self.conv1(images)).relu()
        x = self.bn2(self.conv2(x)).relu()
        x = self.bn3(self.conv3(x)).relu()
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


class DigitsMLP(nn.Module):
    """For 8x8 grey images: two hidden layers with BatchNorm and a linear head.

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
