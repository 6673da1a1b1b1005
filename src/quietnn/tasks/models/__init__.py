"""The image networks by name, each with the state-dict names it is commonly published with."""

from collections.abc import Callable
from functools import partial

from torch import nn

from quietnn.tasks.models.resnet import ResNet, ThinResNet
from quietnn.tasks.models.shufflenet import BranchedShuffleNetV2, ShuffleNetV2

IMAGE_MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": partial(ResNet, (2, 2, 2, 2)),
    "resnet34": partial(ResNet, (3, 4, 6, 3)),
    "shufflenetv2": partial(ShuffleNetV2, (116, 232, 464, 1024)),
    "shufflenetv2-x0_5": partial(BranchedShuffleNetV2, (24, 48, 96, 192, 1024)),
    "resnet20": partial(ThinResNet, 3),
    "resnet32": partial(ThinResNet, 5),
    "resnet44": partial(ThinResNet, 7),
    "resnet56": partial(ThinResNet, 9),
}
"""Name to a function that makes the network with fresh random weights."""
