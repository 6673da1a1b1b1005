"""Residual networks for small images: the paper's, thin ones (He et al. 2016, section 4.2), and one for digits."""

from torch import Tensor, nn
from torch.nn import functional


class _Block(nn.Module):
    """Two 3x3 convolutions with BatchNorm; what extends it puts a shortcut around them."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)

    def _convolved(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return out


class BasicBlock(_Block):
    """A block whose shortcut is projected where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__(in_channels, out_channels, stride)
        self.shortcut = _projection(in_channels, out_channels, stride) or nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w) to (batch, out_channels, h / stride, w / stride)."""
        out = self._convolved(x)
        return functional.relu(out + self.shortcut(x))


class ThinBlock(_Block):
    """The same under the names of thin networks, where the shortcut runs first: methods that visit layers can tell."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__(in_channels, out_channels, stride)
        self.downsample = _projection(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w) to (batch, out_channels, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        return functional.relu(self._convolved(x) + shortcut)


def _projection(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
    )


class ResNet(nn.Module):
    """The four-stage residual network for small images."""

    def __init__(self, num_blocks: tuple[int, int, int, int], *, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(BasicBlock, width, width, num_blocks[0])
        self.layer2 = _stage(BasicBlock, width, 2 * width, num_blocks[1])
        self.layer3 = _stage(BasicBlock, 2 * width, 4 * width, num_blocks[2])
        self.layer4 = _stage(BasicBlock, 4 * width, 8 * width, num_blocks[3])
        self.linear = nn.Linear(8 * width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, 10)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


class ThinResNet(nn.Module):
    """The three-stage residual network of depth `6 num_blocks + 2`: 16, 32 and 64 channels."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(ThinBlock, 16, 16, num_blocks)
        self.layer2 = _stage(ThinBlock, 16, 32, num_blocks)
        self.layer3 = _stage(ThinBlock, 32, 64, num_blocks)
        self.fc = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, 10)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _stage(
    block: type[BasicBlock] | type[ThinBlock], in_channels: int, out_channels: int, num_blocks: int
) -> nn.Sequential:
    """A stage that widens halves the resolution."""
    first = block(in_channels, out_channels, 1 if in_channels == out_channels else 2)
    return nn.Sequential(first, *(block(out_channels, out_channels, 1) for _ in range(num_blocks - 1)))


class DigitsResNet(nn.Module):
    """In miniature, for 8x8 grey images: two residual blocks of 16 and 32 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = ThinBlock(16, 16, stride=1)
        self.layer2 = ThinBlock(16, 32, stride=2)
        self.fc = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 1, 8, 8) to logits (batch, 10)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer2(self.layer1(x))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits
