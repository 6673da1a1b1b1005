"""What calibration is measured against: statistics taken from the sample alone, or mixed in a fixed proportion."""

import copy

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.evidence import some_inputs
from quietnn.observation import observe
from quietnn.repairs.base import Repaired
from quietnn.watching.visits import Visit, visit_batch_norms


@torch.inference_mode(False)
def re_estimate(what: object, inputs: object, *, sample_weight: float = 1.0) -> Repaired:
    """Replace BatchNorm's statistics by those of the inputs: the baseline that knows nothing of the noise.

    Args:
        what: the network as received.
        inputs: at least two inputs, in any form of `Evidence`.
        sample_weight: 0 keeps the clean statistics, 1 takes those of the inputs.

    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    >>> torch.equal(re_estimate(network, torch.rand(9, 3), sample_weight=0.0).model[1].running_var, torch.ones(2))
    True
    """
    observation, evidence = observe(what), some_inputs(inputs, "re_estimate")
    if not 0 <= sample_weight <= 1:
        raise InvalidConfig(f"sample_weight is {sample_weight}; choose a number from 0 (clean) to 1 (re-estimated)")
    result = copy.deepcopy(observation.model)

    def mixed(visit: Visit) -> tuple[Tensor, Tensor]:
        sample = visit.sample.channels
        mean, variance = visit.mean.double(), visit.variance.double()
        return mean + sample_weight * (sample.mean - mean), variance + sample_weight * (sample.variance - variance)

    return Repaired(result, "re_estimated", visit_batch_norms(result, evidence, mixed).passes)
