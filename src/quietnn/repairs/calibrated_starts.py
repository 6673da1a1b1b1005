"""What is made of a network without labels: where a fit with labels begins."""

from typing import Any

from torch import nn

from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.branches import centred_branches
from quietnn.repairs.kinds import has_kernels, has_stored_statistics, normalises_inputs
from quietnn.repairs.structured import calibrate_structured


def calibrated_starts(observation: Observation[Any, Any], evidence: Evidence) -> dict[str, nn.Module]:
    """Where a fit begins: the networks of `repaired_starts`.

    >>> list(calibrated_starts(Observation(nn.Linear(2, 2), 0.1), Evidence()))
    []
    """
    return {name: made.model for name, made in repaired_starts(observation, evidence).items()}


def repaired_starts(observation: Observation[Any, Any], evidence: Evidence) -> dict[str, Repaired]:
    """What can be made without labels, with what it cost.

    With BatchNorm the network calibrated, and with its convolutions under the structured prior as well; where each
    input is normalised MMSE of the branches with a head that prefers no class (labels will judge it). Else nothing.
    """
    if not evidence.has_inputs:
        return {}
    model, starts = observation.model, {}
    if has_stored_statistics(model):
        starts["calibrated"] = calibrate(observation, evidence)
    if has_kernels(model):
        starts["structured"] = calibrate_structured(observation, evidence)
    if normalises_inputs(model, observation.normalisation):
        centred = centred_branches(observation, evidence)
        if centred is not None:
            starts["centred"] = Repaired(centred, "branches_balanced", 1.0)
    return starts
