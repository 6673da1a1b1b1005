"""A last layer that noise makes prefer some classes, put right where classes are known to be equally common."""

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.noise import mean_of
from quietnn.repairs.batchnorm.parameter_noise import ParameterNoise
from quietnn.watching.moments import PatchMoments
from quietnn.watching.visits import Feeder


@torch.no_grad()
def recentre(
    feeder: Feeder | None, outputs: Tensor, *, weight: ParameterNoise, bias: ParameterNoise, upstream: float
) -> float:
    """Shrink the differences between the classes' mean outputs by `k = P / (P + s + T)`, through the layer's bias.

    Noise moves the mean output of a class by a shift of variance `P = sigma^2 sum_k E[x_k]^2 + sigma_b^2 + u V`: its
    own weights' part and bias, and at most a share `u` of the outputs' variance `V` from upstream. Of the differences
    that are seen, `s` is sampling error and `T`, what is left, the clean network's own. No noise, no change.

    Args:
        feeder: the call of the last layer.
        outputs: what it made, (examples, classes).
        weight: the noise on its weights.
        bias: the noise on its bias.
        upstream: `u`.

    Returns:
        `k`, the share of the differences that was taken out.

    Raises:
        InvalidConfig: if the network does not end in a linear layer with a bias.
    """
    layer = feeder.layer if feeder else None
    if feeder is None or not isinstance(layer, nn.Linear) or layer.bias is None:
        raise InvalidConfig(
            "balanced_classes corrects the bias of a last linear layer, and this network does not end in one; "
            "leave balanced_classes out"
        )
    if outputs.dim() != 2:
        raise InvalidConfig(
            f"the network's outputs have shape {tuple(outputs.shape)}; balanced_classes needs (examples, classes), "
            "leave it out"
        )
    means = outputs.double().mean(0)
    differences = means - means.mean()
    variances = outputs.double().var(0)
    patches = PatchMoments.of(layer, feeder.inputs)
    shift = float(
        mean_of(weight.variance) * patches.squared_means[0] + mean_of(bias.variance) + upstream * variances.mean()
    )
    if shift == 0 or len(means) < 2:
        return 0.0
    error = float(variances.mean()) / len(outputs)
    seen = float(differences.square().sum()) / (len(means) - 1)
    taken = shift / max(shift + error, seen)
    layer.bias.sub_((taken * differences).to(layer.bias))
    return taken
