"""Clean statistics carried through the affine denoiser of the layer in front."""

import torch
from torch import Tensor, nn

from quietnn.noise import TensorNoise
from quietnn.repairs.batchnorm.parameter_noise import ParameterNoise
from quietnn.watching.moments import PatchMoments
from quietnn.watching.visits import Feeder, Visit


def carried(
    visit: Visit, feeder: Feeder, patches: PatchMoments, weight: ParameterNoise, bias: ParameterNoise
) -> tuple[Tensor, Tensor]:
    """Mean and variance of `theta a + rho S + rho_b`, where `a` is the clean output and `S` the sum of its inputs.

        mean     = theta m + rho E[S] + (theta_b - theta) b + rho_b
        variance = theta^2 v + 2 rho Cov(a', S) - rho^2 Var[S]

    `a'` is the output at hand, of which `rho S` is a part already; noise is uncorrelated with `S` in expectation. The
    clean bias `b` is judged by the one at hand. `theta` and `rho` may differ between the channels.
    """
    mean, variance = visit.mean.double(), visit.variance.double()
    if _is(weight.theta, 1.0) and _is(weight.rho, 0.0) and _is(bias.theta, 1.0) and _is(bias.rho, 0.0):
        return mean, variance
    mean = weight.theta * mean + weight.rho * patches.means + bias.rho
    own_bias = getattr(feeder.layer, "bias", None)
    if own_bias is not None:
        mean = mean + _bias_left(own_bias.detach().double(), weight.theta, bias)
    variance = weight.theta**2 * variance
    if not _is(weight.rho, 0.0):
        covariance, power = _with_input_sum(feeder, visit.activations)
        variance = variance + 2 * weight.rho * covariance - weight.rho**2 * power
    return mean, variance.clamp_min(0)


def _is(value: TensorNoise, number: float) -> bool:
    return not isinstance(value, Tensor) and value == number


def _bias_left(own: Tensor, theta: TensorNoise, bias: ParameterNoise) -> Tensor | float:
    """`(theta_b - theta) b`, with `b` judged by the bias at hand; nothing where nothing is left of it."""
    if not isinstance(theta, Tensor) and not isinstance(bias.theta, Tensor):
        return (bias.theta - theta) * (own - bias.rho) / bias.theta if bias.theta not in (0.0, theta) else 0.0
    kept = torch.as_tensor(bias.theta, dtype=torch.float64, device=own.device).expand(own.shape)
    clean = (own - bias.rho) / kept.masked_fill(kept == 0, 1.0)
    return torch.where(kept == 0, 0.0, (kept - theta) * clean)


def _with_input_sum(feeder: Feeder, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance of each output channel with the sum of the inputs it is made of, and that sum's variance."""
    layer = feeder.layer
    if isinstance(layer, nn.Linear):
        sums = feeder.inputs.sum(1, keepdim=True)
    else:
        assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
        ones = torch.ones_like(layer.weight[: layer.groups])
        sums = layer._conv_forward(feeder.inputs, ones, None)
    dims = (0, *range(2, outputs.dim()))
    sums = sums - sums.mean(dims, keepdim=True)
    power = sums.square().mean(dims).double()
    repeats = outputs.shape[1] // sums.shape[1]
    covariance = (outputs * sums.repeat_interleave(repeats, dim=1)).mean(dims).double()
    return covariance, power.repeat_interleave(repeats)
