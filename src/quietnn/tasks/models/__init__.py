"""The image networks by name, each with the state-dict names it is commonly published with."""

from collections.abc import Callable
from functools import partial

from torch import nn

from quietnn.tasks.models.resnet import resnet18, resnet34, thin_resnet
from quietnn.tasks.models.shufflenet import shufflenet_v2, shufflenet_v2_x0_5

IMAGE_MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": resnet18,
    "resnet34": resnet34,
    "shufflenetv2": shufflenet_v2,
    "shufflenetv2-x0_5": shufflenet_v2_x0_5,
    "resnet20": partial(thin_resnet, 20),
    "resnet32": partial(thin_resnet, 32),
    "resnet44": partial(thin_resnet, 44),
    "resnet56": partial(thin_resnet, 56),
}
"""Name to a function that makes the network with fresh random weights."""
