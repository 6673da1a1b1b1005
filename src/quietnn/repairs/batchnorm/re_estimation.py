"""What calibration is measured against: statistics taken from the sample alone, or mixed in a fixed proportion."""

import copy

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs
from quietnn.errors import InvalidConfig
from quietnn.watching.moments import ChannelMoments
from quietnn.watching.visits import Visit, visit_batch_norms


def re_estimate(model: nn.Module, inputs: Inputs, *, in_place: bool = False) -> nn.Module:
    """Replace the statistics of every BatchNorm by those of the inputs: plain re-estimation, blind to the noise."""
    return blend(model, inputs, sample_weight=1.0, in_place=in_place)


@torch.inference_mode(False)
def blend(model: nn.Module, inputs: Inputs, *, sample_weight: float, in_place: bool = False) -> nn.Module:
    """Mix clean statistics with those of the inputs, in one proportion for all layers.

    Args:
        model: the network with its clean statistics.
        inputs: at least two inputs; all go through the network at once, and each layer sees mixed statistics.
        sample_weight: 0 keeps the clean statistics, 1 takes those of the inputs.
        in_place: set the statistics of the model itself instead of those of a copy.
    """
    if not 0 <= sample_weight <= 1:
        raise InvalidConfig(f"sample_weight is {sample_weight}; choose a number from 0 (clean) to 1 (re-estimated)")
    result = model if in_place else copy.deepcopy(model)

    def mixed(visit: Visit) -> tuple[Tensor, Tensor]:
        sample = ChannelMoments.of(visit.activations, about=visit.mean)
        mean, variance = visit.mean.double(), visit.variance.double()
        return mean + sample_weight * (sample.mean - mean), variance + sample_weight * (sample.variance - variance)

    visit_batch_norms(result, inputs, mixed)
    return result
