"""The affine family where the noise differs from weight to weight.

With `z_i ~ N(0, v_i)` the derivation of the family (eqs. 10, 13) goes through for each weight by itself. The two
temperatures stay those of the group, so that in the centred form

    theta_i = sigma_w^2 / (sigma_w^2 + (1 - lambda') v_i)        rho_i = (1 - theta_i) mu_w + theta_i v_i beta

and the pole `lambda' = 1 + sigma_w^2 / max v_i` is that of the noisiest weight. MMSE (`lambda' = beta = 0`) has the
error `mean(sigma_w^2 v_i / (sigma_w^2 + v_i))`. One multiplier for all has at best `sigma_w^2 V / (sigma_w^2 + V)`
with `V = mean(v_i)`, which is never less, for the function is concave in `v`.

That holds for weights that share a prior. The noise of a memory or a quantiser follows the scale of each tensor: small
weights have little noise, and under one prior for all they would be taken for large ones told precisely. Where noise
differs between the tensors of a group, each has therefore a prior of its own, as far as it can be told from that of the
others (`shared_prior.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.moments import WeightStatistics
from quietnn.noise import TensorNoise, mean_of
from quietnn.repairs.affine import ML, Temperatures
from quietnn.repairs.shared_prior import Told, pooled, shared_priors
from quietnn.theory.family import Form, affine_coefficients, check_lambda_prime
from quietnn.weights import Partition

_ITERATIONS = 30


@dataclass(frozen=True)
class WeightwiseMap:
    """The map `w_hat_i = theta_i r_i + rho_i` of one tensor.

    Attributes:
        theta: a number, or a tensor that broadcasts to the weights.
        rho: the same.
    """

    theta: TensorNoise
    rho: TensorNoise

    @torch.no_grad()
    def __call__(self, received: Tensor, out: Tensor | None = None) -> Tensor:
        """Denoise a tensor, into `out` if given; 16-bit tensors are computed in float32 and rounded once."""
        exact = torch.promote_types(received.dtype, torch.float32)
        estimate = received.to(exact) * _as(self.theta, exact) + _as(self.rho, exact)
        return estimate.to(received.dtype) if out is None else out.copy_(estimate)


def weightwise_map(
    temperatures: Temperatures, statistics: WeightStatistics, noise: TensorNoise, *, form: Form | str = Form.CENTRED
) -> WeightwiseMap:
    """The member of the family with these temperatures, for each weight of a tensor by itself.

    >>> statistics = WeightStatistics(mean=0.0, variance=3.0, num_weights=10)
    >>> weightwise_map(Temperatures(0.0), statistics, torch.tensor([0.0, 1.0, 3.0])).theta
    tensor([1.0000, 0.7500, 0.5000], dtype=torch.float64)

    Raises:
        InfeasibleTemperatures: if a weight's noise puts `lambda'` at or past its pole.
    """
    form = Form(form)
    if isinstance(noise, Tensor):
        return _map_by_weight(temperatures, statistics, noise.double(), form)
    theta, rho = affine_coefficients(
        temperatures.lambda_prime,
        temperatures.beta,
        weight_variance=statistics.variance,
        noise_variance=noise,
        weight_mean=statistics.mean,
        form=form,
    )
    return WeightwiseMap(theta, rho)


def _map_by_weight(
    temperatures: Temperatures, statistics: WeightStatistics, noise: Tensor, form: Form
) -> WeightwiseMap:
    if form is not Form.UNCENTRED and temperatures == ML:
        return WeightwiseMap(1.0, 0.0)
    variance, lambda_prime = statistics.variance, temperatures.lambda_prime
    check_lambda_prime(lambda_prime, weight_variance=variance, noise_variance=float(noise.max()))
    silent = noise == 0  # without noise the weight itself, also where 0 / 0 would stand
    uncompensated = (1.0 - lambda_prime) * noise
    denominator = (variance + uncompensated).masked_fill(silent, 1.0)
    theta = torch.where(silent, 1.0, variance / denominator)
    rho = theta * noise * temperatures.beta
    if form is Form.CENTRED:
        rho = rho + uncompensated / denominator * statistics.mean
    elif form is Form.UNCENTRED:
        rho = rho + noise / denominator * statistics.mean
    return WeightwiseMap(theta, rho)


def priors_under(
    told: Mapping[str, Told], noise: Mapping[str, TensorNoise], groups: Partition
) -> tuple[dict[str, WeightStatistics], dict[str, WeightStatistics]]:
    """The prior of each group, and of each tensor where noise differs between the tensors of the group.

    A group pools its tensors by their size, for a tensor with little noise may have smaller weights than the rest.
    Where noise is the same for all tensors, that is the prior of each.

    >>> told = {"a": (0.0, 1.0, 900), "b": (0.0, 3.0, 900)}
    >>> priors_under(told, {"a": 0.1, "b": 0.1}, {"whole": ("a", "b")})[1]["a"].variance
    2.0
    >>> round(priors_under(told, {"a": 0.1, "b": 0.2}, {"whole": ("a", "b")})[1]["a"].variance, 2)
    1.0
    """
    by_group = {group: pooled([told[name] for name in members]) for group, members in groups.items()}
    by_tensor = {}
    for group, members in groups.items():
        if len({mean_of(noise[name]) for name in members}) > 1:
            by_tensor.update(shared_priors({name: told[name] for name in members}, noise))
        else:
            by_tensor.update(dict.fromkeys(members, by_group[group]))
    return by_group, by_tensor


def told(tensor: Tensor, noise: TensorNoise) -> Told:
    """What a receiver can tell of a tensor's clean weights when it knows the noise on each.

    Each weight counts by how much it tells, `1 / (sigma_w^2 + v_i)` for the mean and its square for `(r_i - mu)^2 -
    v_i` (the steps of Fisher scoring, until they settle); a weight lost in a deep fade counts nothing.

    >>> told(torch.tensor([1.0, -1.0]), 0.25)
    (0.0, 0.75, 2)
    """
    values = tensor.detach().double().flatten()
    if not isinstance(noise, Tensor):
        return told_of(WeightStatistics.from_clean([tensor]), noise)
    spread = noise.double().expand(tensor.shape).flatten().to(values.device)
    mean, variance = float(values.mean()), float(values.var(correction=0) - spread.mean())
    for _ in range(_ITERATIONS):
        precision = 1.0 / (max(variance, 0.0) + spread).clamp_min(torch.finfo(torch.float64).tiny ** 0.25)
        mean = float((precision * values).sum() / precision.sum())
        weight = precision.square()
        before, variance = variance, float((weight * ((values - mean).square() - spread)).sum() / weight.sum())
        if abs(variance - before) <= 1e-9 * abs(variance):
            break
    return mean, variance, values.numel()


def told_of(received: WeightStatistics, noise: float) -> Told:
    """The same for one noise variance, of which only the statistics of the received weights are needed."""
    return received.mean, received.variance - noise, received.num_weights


def _as(value: TensorNoise, dtype: torch.dtype) -> TensorNoise:
    return value.to(dtype) if isinstance(value, Tensor) else value
