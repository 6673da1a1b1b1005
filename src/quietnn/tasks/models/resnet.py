"""The paper's CIFAR residual networks: a 3x3 stem and four stages of 64 to 512 channels."""

from torch import Tensor, nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut, projected where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w) to (batch, out_channels, h / stride, w / stride)."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return functional.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """The four-stage residual network for small images."""

    def __init__(self, num_blocks: tuple[int, int, int, int], *, width: int = 64, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(width, width, num_blocks[0], stride=1)
        self.layer2 = _stage(width, 2 * width, num_blocks[1], stride=2)
        self.layer3 = _stage(2 * width, 4 * width, num_blocks[2], stride=2)
        self.layer4 = _stage(4 * width, 8 * width, num_blocks[3], stride=2)
        self.linear = nn.Linear(8 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, num_classes)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _stage(in_channels: int, out_channels: int, num_blocks: int, *, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(BasicBlock(out_channels, out_channels, 1) for _ in range(num_blocks - 1)))


def resnet18(*, num_classes: int = 10) -> ResNet:
    """The paper's ResNet18 for CIFAR.

    >>> sum(parameter.numel() for parameter in resnet18().parameters())
    11173962
    """
    return ResNet((2, 2, 2, 2), num_classes=num_classes)


def resnet34(*, num_classes: int = 10) -> ResNet:
    """The paper's ResNet34 for CIFAR, 21.3 million parameters."""
    return ResNet((3, 4, 6, 3), num_classes=num_classes)
