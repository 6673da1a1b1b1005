"""ShuffleNetV2 x0.5 for 32x32 images in the other published naming: `conv1`, `stage2..4`, `conv5`, `fc`."""

import torch
from torch import Tensor, nn

from quietnn.tasks.models.channel_shuffle import shuffle_channels


def _conv_bn(
    in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, depthwise: bool = False
) -> list[nn.Module]:
    convolution = nn.Conv2d(
        in_channels,
        out_channels,
        kernel,
        stride=stride,
        padding=kernel // 2,
        groups=in_channels if depthwise else 1,
        bias=False,
    )
    return [convolution, nn.BatchNorm2d(out_channels)]


class BranchedUnit(nn.Module):
    """One ShuffleNetV2 unit; with stride 2 both branches work, else `branch1` is the identity."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        half = out_channels // 2
        branch2_channels = in_channels if stride == 2 else half
        self.branch1 = nn.Sequential()
        if stride == 2:
            self.branch1 = nn.Sequential(
                *_conv_bn(in_channels, in_channels, 3, stride=2, depthwise=True),
                *_conv_bn(in_channels, half, 1),
                nn.ReLU(),
            )
        self.branch2 = nn.Sequential(
            *_conv_bn(branch2_channels, half, 1),
            nn.ReLU(),
            *_conv_bn(half, half, 3, stride=stride, depthwise=True),
            *_conv_bn(half, half, 1),
            nn.ReLU(),
        )
        self.splits = stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w) to (batch, out_channels, h / stride, w / stride)."""
        left, right = x.chunk(2, dim=1) if self.splits else (x, x)
        return shuffle_channels(self.branch1(left), self.branch2(right))


class BranchedShuffleNetV2(nn.Module):
    """A 3x3 stem, stages of 4, 8 and 4 units, a 1x1 head."""

    def __init__(self, channels: tuple[int, int, int, int, int], *, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(*_conv_bn(3, channels[0], 3), nn.ReLU())
        self.stage2 = _stage(channels[0], channels[1], 4)
        self.stage3 = _stage(channels[1], channels[2], 8)
        self.stage4 = _stage(channels[2], channels[3], 4)
        self.conv5 = nn.Sequential(*_conv_bn(channels[3], channels[4], 1), nn.ReLU())
        self.fc = nn.Linear(channels[4], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, h, w) to logits (batch, num_classes)."""
        x = self.stage4(self.stage3(self.stage2(self.conv1(images))))
        logits: Tensor = self.fc(torch.mean(self.conv5(x), dim=(2, 3)))
        return logits


def _stage(in_channels: int, out_channels: int, num_units: int) -> nn.Sequential:
    first = BranchedUnit(in_channels, out_channels, stride=2)
    return nn.Sequential(first, *(BranchedUnit(out_channels, out_channels, stride=1) for _ in range(num_units - 1)))


def shufflenet_v2_x0_5(*, num_classes: int = 10) -> BranchedShuffleNetV2:
    """ShuffleNetV2 x0.5: channels 24, 48, 96, 192 and a head of 1024.

    >>> sum(parameter.numel() for parameter in shufflenet_v2_x0_5().parameters())
    352042
    """
    return BranchedShuffleNetV2((24, 48, 96, 192, 1024), num_classes=num_classes)
