"""ShuffleNetV2 (Ma et al. 2018) for 32x32 images, in the two forms it is published in, with their state-dict names."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def shuffle_channels(left: Tensor, right: Tensor) -> Tensor:
    """Interleave the channels of two branches, the step that gives the network its name: `l0 r0 l1 r1 ...`."""
    return torch.stack((left, right), dim=2).flatten(1, 2)


def _pointwise(in_channels: int, out_channels: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 1, bias=False)


def _depthwise(channels: int, *, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False)


class BasicUnit(nn.Module):
    """Half of the channels pass untouched, the other half through pointwise, depthwise, pointwise."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.conv1 = _pointwise(half, half)
        self.bn1 = nn.BatchNorm2d(half)
        self.conv2 = _depthwise(half, stride=1)
        self.bn2 = nn.BatchNorm2d(half)
        self.conv3 = _pointwise(half, half)
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
        self.conv1 = _depthwise(in_channels, stride=2)
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv2 = _pointwise(in_channels, half)
        self.bn2 = nn.BatchNorm2d(half)
        self.conv3 = _pointwise(in_channels, half)
        self.bn3 = nn.BatchNorm2d(half)
        self.conv4 = _depthwise(half, stride=2)
        self.bn4 = nn.BatchNorm2d(half)
        self.conv5 = _pointwise(half, half)
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
    """A stem of 24 channels, stages of one down unit and 3, 7 and 3 basic ones, a 1x1 head: the paper's network."""

    def __init__(self, channels: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 24, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(24)
        self.layer1 = _plain_stage(24, channels[0], 3)
        self.layer2 = _plain_stage(channels[0], channels[1], 7)
        self.layer3 = _plain_stage(channels[1], channels[2], 3)
        self.conv2 = _pointwise(channels[2], channels[3])
        self.bn2 = nn.BatchNorm2d(channels[3])
        self.linear = nn.Linear(channels[3], 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, 10)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        x = functional.relu(self.bn2(self.conv2(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _plain_stage(in_channels: int, out_channels: int, num_basic_units: int) -> nn.Sequential:
    down = DownUnit(in_channels, out_channels)
    return nn.Sequential(down, *(BasicUnit(out_channels) for _ in range(num_basic_units)))


class BranchedUnit(nn.Module):
    """The same units with other names; with stride 2 both branches work, else `branch1` is the identity."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        half = out_channels // 2
        self.branch1 = nn.Sequential()
        if stride == 2:
            self.branch1 = nn.Sequential(
                _depthwise(in_channels, stride=2),
                nn.BatchNorm2d(in_channels),
                _pointwise(in_channels, half),
                nn.BatchNorm2d(half),
                nn.ReLU(),
            )
        self.branch2 = nn.Sequential(
            _pointwise(in_channels if stride == 2 else half, half),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            _depthwise(half, stride=stride),
            nn.BatchNorm2d(half),
            _pointwise(half, half),
            nn.BatchNorm2d(half),
            nn.ReLU(),
        )
        self.splits = stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w) to (batch, out_channels, h / stride, w / stride)."""
        left, right = x.chunk(2, dim=1) if self.splits else (x, x)
        return shuffle_channels(self.branch1(left), self.branch2(right))


class BranchedShuffleNetV2(nn.Module):
    """A 3x3 stem, stages of 4, 8 and 4 units, a 1x1 head."""

    def __init__(self, channels: tuple[int, int, int, int, int]) -> None:
        super().__init__()
        stem = nn.Conv2d(3, channels[0], 3, padding=1, bias=False)
        self.conv1 = nn.Sequential(stem, nn.BatchNorm2d(channels[0]), nn.ReLU())
        self.stage2 = _branched_stage(channels[0], channels[1], 4)
        self.stage3 = _branched_stage(channels[1], channels[2], 8)
        self.stage4 = _branched_stage(channels[2], channels[3], 4)
        self.conv5 = nn.Sequential(_pointwise(channels[3], channels[4]), nn.BatchNorm2d(channels[4]), nn.ReLU())
        self.fc = nn.Linear(channels[4], 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, 10)."""
        x = self.stage4(self.stage3(self.stage2(self.conv1(images))))
        logits: Tensor = self.fc(torch.mean(self.conv5(x), dim=(2, 3)))
        return logits


def _branched_stage(in_channels: int, out_channels: int, num_units: int) -> nn.Sequential:
    first = BranchedUnit(in_channels, out_channels, stride=2)
    return nn.Sequential(first, *(BranchedUnit(out_channels, out_channels, stride=1) for _ in range(num_units - 1)))
