"""Thin CIFAR residual networks (He et al. 2016, section 4.2): three stages of 16, 32 and 64 channels."""

from torch import Tensor, nn
from torch.nn import functional

from quietnn.errors import InvalidConfig


class ThinBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; `downsample` projects it where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w) to (batch, out_channels, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + shortcut)


class ThinResNet(nn.Module):
    """The three-stage residual network of depth `6 num_blocks + 2`."""

    def __init__(self, num_blocks: int, *, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, num_blocks, stride=1)
        self.layer2 = _stage(16, 32, num_blocks, stride=2)
        self.layer3 = _stage(32, 64, num_blocks, stride=2)
        self.fc = nn.Linear(64, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, num_classes)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _stage(in_channels: int, out_channels: int, num_blocks: int, *, stride: int) -> nn.Sequential:
    first = ThinBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(ThinBlock(out_channels, out_channels, 1) for _ in range(num_blocks - 1)))


def thin_resnet(depth: int, *, num_classes: int = 10) -> ThinResNet:
    """A thin residual network of depth `6 n + 2`: 20, 32, 44, 56, ...

    Raises:
        InvalidConfig: if no such network has this depth.

    >>> sum(parameter.numel() for parameter in thin_resnet(20).parameters())
    272474
    """
    num_blocks, rest = divmod(depth - 2, 6)
    if num_blocks < 1 or rest:
        raise InvalidConfig(f"a thin ResNet has depth 6 n + 2 with n >= 1 (20, 32, 44, 56), not {depth}")
    return ThinResNet(num_blocks, num_classes=num_classes)
