"""Networks that calibration makes of a noisy one without labels: where a fit with labels begins."""

from torch import nn

from quietnn.batches import Inputs
from quietnn.noise import NoiseVariance
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.branch_denoisers import normalises_each_input
from quietnn.repairs.branches import centred_branches
from quietnn.repairs.structured import calibrate_structured
from quietnn.watching.visits import CONVOLUTIONS, BatchNorm
from quietnn.weights import NORMALISATION_TYPES


def has_stored_statistics(model: nn.Module) -> bool:
    """Whether there is a BatchNorm with running statistics to calibrate."""
    return any(isinstance(layer, BatchNorm) and layer.running_mean is not None for layer in model.modules())


def has_kernels(model: nn.Module) -> bool:
    """Whether there is a convolution to have a structured prior, and a BatchNorm to be calibrated."""
    return has_stored_statistics(model) and any(type(layer) in CONVOLUTIONS for layer in model.modules())


def scale_is_undone(model: nn.Module, normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES) -> bool:
    """Whether shrinking all weights together is harmless: layers normalise each input, and none by stored statistics.

    MMSE multiplies what every layer makes by `theta < 1`. A LayerNorm takes the factor out again, layer by layer, and
    what is left of MMSE is that noisy branches count less. A BatchNorm with stored statistics passes the factor on, and
    it compounds with depth.
    """
    stored = any(getattr(layer, "running_mean", None) is not None for layer in model.modules())
    return not stored and any(normalises_each_input(layer, normalisation) for layer in model.modules())


def calibrated_starts(
    model: nn.Module,
    inputs: Inputs,
    *,
    noise_variance: NoiseVariance,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> dict[str, nn.Module]:
    """The `starts` of `quietnn.posterior`, one forward pass each.

    With BatchNorm the network calibrated, and with its convolutions under the structured prior as well; where each
    input is normalised MMSE of the branches with a head that prefers no class (labels will judge it). Else nothing.

    >>> list(calibrated_starts(nn.Linear(2, 2), inputs=None, noise_variance=0.1))
    []
    """
    starts = {}
    if has_stored_statistics(model):
        starts["calibrated"] = calibrate(model, inputs, noise_variance=noise_variance, normalisation=normalisation)
    if has_kernels(model):
        starts["structured"] = calibrate_structured(
            model, inputs, noise_variance=noise_variance, normalisation=normalisation
        )
    if scale_is_undone(model, normalisation):
        centred = centred_branches(model, inputs, noise_variance=noise_variance, normalisation=normalisation)
        if centred is not None:
            starts["centred"] = centred
    return starts
