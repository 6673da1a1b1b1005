"""The one call for the common case."""

from collections.abc import Collection, Mapping

from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance
from quietnn.repairs.affine import METHODS, AffineDenoiser, Temperatures
from quietnn.repairs.grouped import GroupTemperatures, Reception
from quietnn.targets import Target, noisy_weights, with_weights
from quietnn.theory.family import Form
from quietnn.weights import NORMALISATION_TYPES, Partition, WeightStatistics


def denoise(
    target: Target,
    *,
    noise_variance: NoiseVariance,
    method: str | None = None,
    groups: str | Partition = "whole",
    lambda_prime: float | None = None,
    beta: float | None = None,
    temperatures: Temperatures | GroupTemperatures | None = None,
    statistics: Mapping[str, WeightStatistics] | None = None,
    form: Form | str = Form.CENTRED,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    in_place: bool = False,
) -> Target:
    """Estimate the clean weights from noisy ones: `w_hat = theta r + rho` for each group.

    Args:
        target: a module, a state dict or a tensor; its normalisation layers are left alone.
        noise_variance: `sigma_z^2`, the variance of the noise on every weight; or by tensor or group name, each a
            number or a tensor with one value a channel or a weight.
        method: `"ml"`, `"mmse"` (the default), `"mmse_p"` (give `lambda_prime`) or `"mmse_pb"` (give `beta` too).
        groups: `"whole"`, `"layerwise"`, or the tensor names of each group.
        lambda_prime: the population compensator, `0 <= lambda' < 1 + eta`; 0 is MMSE, 1 is ML.
        beta: the bias compensator.
        temperatures: `(lambda', beta)` for all groups or by group, instead of `method`.
        statistics: `WeightStatistics` by group; estimated from the received weights when not given.
        form: how the prior mean enters, see `Form`.
        noisy: names of the noisy tensors, where the usual rule does not fit.
        normalisation: module types whose parameters carry no noise.
        in_place: overwrite the target instead of returning a copy.

    Returns:
        The denoised target, of the same kind.

    Raises:
        QuietnnError: for weights that are not finite, a bad variance, or infeasible temperatures. The target
            is then as it was.

    >>> import torch
    >>> denoise(torch.tensor([2.0, -2.0]), noise_variance=1.0)    # var(r) = 4, so sigma_w^2 = 3, theta = 3/4
    tensor([ 1.5000, -1.5000])
    """
    received = noisy_weights(target, noisy=noisy, normalisation=normalisation)
    reception = Reception.of(received, noise_variance, groups=groups, statistics=statistics, form=form)
    denoisers = method_denoisers(reception, method, lambda_prime, beta, temperatures)
    if in_place:
        reception.estimate(denoisers, out=received)
        return target
    return with_weights(target, reception.estimate(denoisers))


def method_denoisers(
    reception: Reception,
    method: str | None,
    lambda_prime: float | None,
    beta: float | None,
    temperatures: Temperatures | GroupTemperatures | None,
) -> dict[str, AffineDenoiser]:
    """The affine map of each group, by the name of a method or by temperatures.

    Raises:
        InvalidConfig: if the method is unknown, or its temperatures are missing, superfluous or given twice.
        InfeasibleTemperatures: if a pair lies at or past the pole of its group.
    """
    chosen = method_temperatures(method, lambda_prime, beta, temperatures)
    if chosen is None:
        return dict.fromkeys(reception.groups, AffineDenoiser(1.0, 0.0))
    return reception.denoisers(chosen)


def method_temperatures(
    method: str | None,
    lambda_prime: float | None,
    beta: float | None,
    temperatures: Temperatures | GroupTemperatures | None,
) -> Temperatures | GroupTemperatures | None:
    """The temperatures that a choice of method means; None for ML, which leaves the weights alone in every form."""
    if temperatures is not None:
        if method is not None:
            raise InvalidConfig(f"temperatures take the place of a method, and method is {method!r}; leave one out")
        if lambda_prime is not None or beta is not None:
            raise InvalidConfig("temperatures were given twice; give either temperatures or lambda_prime and beta")
        return temperatures
    method = method or "mmse"
    if method not in METHODS:
        raise InvalidConfig(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
    chosen = METHODS[method].temperatures(lambda_prime, beta)
    return None if method == "ml" else chosen
