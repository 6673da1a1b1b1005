"""ShuffleNetV2 (Ma et al. 2018) for 32x32 images, with the state-dict names of the paper's 1.26M-parameter network."""

from torch import Tensor, nn
from torch.nn import functional

from quietnn.tasks.models.channel_shuffle import shuffle_channels


class BasicUnit(nn.Module):
    """Half of the channels pass untouched, the other half through pointwise, depthwise, pointwise."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.conv1 = nn.Conv2d(half, half, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(half)
        self.conv2 = nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False)
        self.bn2 = nn.BatchNorm2d(half)
        self.conv3 = nn.Conv2d(half, half, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(half)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, h, w) to the same shape."""
        untouched, out = x.chunk(2, dim=1)
        out = functional.relu(self.bn1(self.conv1(out)))
        out = self.bn2(self.conv2(out))
        out = functional.relu(self.bn3(self.conv3(out)))
        return shuffle_channels(untouched, out)


class DownUnit(nn.Module):
    """Halves the resolution: both branches see all channels, each makes half of the output."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        half = out_channels // 2
        self.conv1 = nn.Conv2d(in_channels, in_channels, 3, stride=2, padding=1, groups=in_channels, bias=False)
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv2 = nn.Conv2d(in_channels, half, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(half)
        self.conv3 = nn.Conv2d(in_channels, half, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(half)
        self.conv4 = nn.Conv2d(half, half, 3, stride=2, padding=1, groups=half, bias=False)
        self.bn4 = nn.BatchNorm2d(half)
        self.conv5 = nn.Conv2d(half, half, 1, bias=False)
        self.bn5 = nn.BatchNorm2d(half)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w) to (batch, out_channels, h / 2, w / 2)."""
        left = self.bn1(self.conv1(x))
        left = functional.relu(self.bn2(self.conv2(left)))
        right = functional.relu(self.bn3(self.conv3(x)))
        right = self.bn4(self.conv4(right))
        right = functional.relu(self.bn5(self.conv5(right)))
        return shuffle_channels(left, right)


class ShuffleNetV2(nn.Module):
    """A 3x3 stem of 24 channels, three stages of one down unit and some basic ones, a 1x1 head."""

    def __init__(
        self,
        channels: tuple[int, int, int, int],
        *,
        num_blocks: tuple[int, int, int] = (3, 7, 3),
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 24, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(24)
        self.layer1 = _stage(24, channels[0], num_blocks[0])
        self.layer2 = _stage(channels[0], channels[1], num_blocks[1])
        self.layer3 = _stage(channels[1], channels[2], num_blocks[2])
        self.conv2 = nn.Conv2d(channels[2], channels[3], 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels[3])
        self.linear = nn.Linear(channels[3], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, num_classes)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        x = functional.relu(self.bn2(self.conv2(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _stage(in_channels: int, out_channels: int, num_basic_units: int) -> nn.Sequential:
    down = DownUnit(in_channels, out_channels)
    return nn.Sequential(down, *(BasicUnit(out_channels) for _ in range(num_basic_units)))


def shufflenet_v2(*, num_classes: int = 10) -> ShuffleNetV2:
    """The paper's ShuffleNetV2 for CIFAR: stages of 116, 232 and 464 channels, a head of 1024.

    >>> sum(parameter.numel() for parameter in shufflenet_v2().parameters())
    1263854
    """
    return ShuffleNetV2((116, 232, 464, 1024), num_classes=num_classes)
