"""The affine family on a whole observation: one map for each group, by method or by temperatures."""

from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance
from quietnn.observation import observe
from quietnn.repairs.affine import Temperatures, temperatures_of
from quietnn.repairs.base import Repaired
from quietnn.repairs.grouped import GroupTemperatures, grouped
from quietnn.targets import with_weights
from quietnn.theory.family import Form
from quietnn.weights import Partition


def denoise(
    what: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    method: str | None = None,
    groups: str | Partition = "whole",
    lambda_prime: float | None = None,
    beta: float | None = None,
    temperatures: Temperatures | GroupTemperatures | None = None,
    form: Form | str = Form.CENTRED,
    in_place: bool = False,
) -> Repaired:
    """Estimate the clean weights from noisy ones, without data: `w_hat = theta r + rho` for each group.

    Args:
        what: what arrived: an `Observation`, a module, a state dict or a tensor. Normalisation layers stay as they are.
        noise_variance: `sigma_z^2`, the variance of the noise on every weight; or by tensor or group name, each a
            number or a tensor with one value a channel or a weight.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        method: `"ml"`, `"mmse"` (the default), `"mmse_p"` (give `lambda_prime`) or `"mmse_pb"` (give `beta` too).
        groups: `"whole"`, `"layerwise"`, or the tensor names of each group.
        lambda_prime: the population compensator, `0 <= lambda' < 1 + eta`; 0 is MMSE, 1 is ML.
        beta: the bias compensator.
        temperatures: `(lambda', beta)` for all groups or by group, instead of `method`.
        form: how the prior mean enters, see `quietnn.theory.family.Form`.
        in_place: overwrite what arrived instead of a copy.

    Raises:
        QuietnnError: for weights that are not finite, a bad variance, or infeasible temperatures. What arrived is then
            as it was.

    >>> import torch
    >>> denoise(torch.tensor([2.0, -2.0]), noise_variance=1.0).model     # var(r) = 4: sigma_w^2 = 3, theta = 3/4
    tensor([ 1.5000, -1.5000])
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    if in_place and observation.as_received is not None:
        raise InvalidConfig(
            "a gain or offset was undone in a copy, so nothing can be written in place; leave in_place out"
        )
    weights = grouped(observation, groups, form=form)
    denoisers = weights.denoisers(method_temperatures(method, lambda_prime, beta, temperatures))
    name = method or ("mmse" if temperatures is None else "mmse_pb")
    if in_place:
        weights.estimate(denoisers, out=observation.weights)
        return Repaired(observation.received, name)
    return Repaired(with_weights(observation.received, weights.estimate(denoisers)), name)


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
    chosen = temperatures_of(method or "mmse", lambda_prime, beta)
    return None if method == "ml" else chosen
