"""The family of denoisers `w_hat = theta r + rho` as functions of the two temperatures.

Each member minimises a compensated squared error under a Gaussian prior `N(mu_w, sigma_w^2)` (eqs. 12, 13):

    E[(w_hat - w)^2 exp(lambda (w - m)^2 + beta w) | r],        lambda' = 2 sigma_w^2 lambda

where `m` is the centre of the population compensator. With `eta = sigma_w^2 / sigma_z^2` the multiplier is
`theta = eta / (eta + 1 - lambda')` whatever the centre; the centre decides how `mu_w` enters `rho`.
"""

import math
from enum import StrEnum
from numbers import Real

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, QuietnnError, unknown_choice
from quietnn.units import db_to_ratio, ratio_to_db


class Form(StrEnum):
    """How the prior mean enters the additive term `rho`.

    `CENTRED` puts the compensator on `w - mu_w`, so that ML and MMSE are exact for any mean.
    `UNCENTRED` is the paper's derivation (eq. 10, and `mu_lambda,beta` under eq. 14), which adds `mu_w / eta` to ML.
    `ZERO_MEAN` is the paper's final form (eq. 13), which drops the mean.
    """

    CENTRED = "centred"
    UNCENTRED = "uncentred"
    ZERO_MEAN = "zero-mean"

    @classmethod
    def _missing_(cls, value: object) -> "Form":
        raise unknown_choice("form", value, cls)


class Region(StrEnum):
    """The names of the stretches of the `lambda'` axis (Fig. 2)."""

    ZERO = "zero compensation"
    UNDER = "under-compensation"
    EXACT = "exact compensation"
    OVER = "over-compensation"
    INFEASIBLE = "infeasible"


def affine_coefficients(
    lambda_prime: float,
    beta: float,
    *,
    weight_variance: float,
    noise_variance: float,
    weight_mean: float = 0.0,
    form: Form | str = Form.CENTRED,
) -> tuple[float, float]:
    """The multiplier and offset `(theta, rho)` of the denoiser with temperatures `(lambda', beta)`.

        theta = sigma_w^2 / d        d = sigma_w^2 + (1 - lambda') sigma_z^2
        rho   = (1 - theta) mu_w + sigma_w^2 sigma_z^2 beta / d                  (centred)
        rho   = sigma_z^2 (mu_w + sigma_w^2 beta) / d                            (uncentred)
        rho   = sigma_w^2 sigma_z^2 beta / d                                     (zero mean, eq. 13)

    `lambda' = 1, beta = 0` is ML and gives `(1, 0)` in the centred form even where `sigma_w^2 = 0`;
    without noise every member is the identity.

    >>> affine_coefficients(0.0, 0.0, weight_variance=3.0, noise_variance=1.0)   # MMSE
    (0.75, 0.0)
    >>> affine_coefficients(1.0, 0.0, weight_variance=3.0, noise_variance=1.0)   # ML
    (1.0, 0.0)

    Raises:
        InfeasibleTemperatures: unless `0 <= lambda' < 1 + eta` and the coefficients are floats.
        QuietnnError: if a variance is negative or a number is not finite.
    """
    check_variance(weight_variance, "weight_variance")
    check_variance(noise_variance, "noise_variance")
    for name, value in (("beta", beta), ("weight_mean", weight_mean)):
        if not math.isfinite(value):
            raise QuietnnError(f"{name} is {value}; it must be a finite number")
    form = Form(form)
    if noise_variance == 0 and 0 <= lambda_prime < math.inf:
        return 1.0, 0.0
    if form is not Form.UNCENTRED and lambda_prime == 1 and beta == 0:
        return 1.0, 0.0
    check_lambda_prime(lambda_prime, weight_variance=weight_variance, noise_variance=noise_variance)
    uncompensated = (1.0 - lambda_prime) * noise_variance
    denominator = weight_variance + uncompensated
    theta = weight_variance / denominator
    rho = theta * noise_variance * beta
    if form is Form.CENTRED:
        rho += uncompensated / denominator * weight_mean
    elif form is Form.UNCENTRED:
        rho += noise_variance / denominator * weight_mean
    if not (math.isfinite(theta) and math.isfinite(rho)):
        raise InfeasibleTemperatures(
            f"lambda' = {lambda_prime:g} and beta = {beta:g} give theta = {theta:g} and rho = {rho:g}, past what a "
            "float holds; move lambda' away from its pole, or beta towards zero"
        )
    return theta, rho


def lambda_prime_of(theta: float, *, weight_variance: float, noise_variance: float) -> float:
    """The temperature `lambda'` whose multiplier is `theta`: the inverse of `affine_coefficients`.

    `lambda' = 1 + eta (1 - 1 / theta)`.

    >>> lambda_prime_of(1.0, weight_variance=3.0, noise_variance=1.0)   # ML
    1.0
    """
    if not theta > 0:
        raise QuietnnError(f"theta is {theta}; only a positive multiplier belongs to a feasible lambda'")
    if noise_variance == 0:
        raise QuietnnError("without noise every lambda' gives theta = 1; noise_variance must be positive")
    return 1.0 + (weight_variance / noise_variance) * (1.0 - 1.0 / theta)


def pole(*, weight_variance: float, noise_variance: float) -> float:
    """The value `lambda' = 1 + eta` at which `theta` has its pole; feasible temperatures lie below it.

    >>> pole(weight_variance=3.0, noise_variance=1.0)
    4.0
    """
    return math.inf if noise_variance == 0 else 1.0 + weight_variance / noise_variance


def region(lambda_prime: float, *, weight_variance: float, noise_variance: float) -> Region:
    """The name of the region of compensation that `lambda'` lies in.

    >>> region(1.2, weight_variance=3.0, noise_variance=1.0).value
    'over-compensation'
    """
    if not _feasible(lambda_prime, weight_variance, noise_variance):
        return Region.INFEASIBLE
    if lambda_prime == 0:
        return Region.ZERO
    if lambda_prime == 1:
        return Region.EXACT
    return Region.UNDER if lambda_prime < 1 else Region.OVER


def check_variance(variance: float, name: str) -> None:
    """Refuse a variance that is negative or not finite."""
    if not (isinstance(variance, Real) and 0 <= variance < math.inf):
        raise QuietnnError(
            f"{name} is {variance!r}; a variance must be finite and not negative, give a number such as 1e-4"
        )


def check_lambda_prime(lambda_prime: float, *, weight_variance: float, noise_variance: float) -> None:
    """Refuse a temperature outside `0 <= lambda' < 1 + eta`."""
    if not _feasible(lambda_prime, weight_variance, noise_variance):
        limit = pole(weight_variance=weight_variance, noise_variance=noise_variance)
        wnr_db = ratio_to_db(weight_variance / noise_variance) if noise_variance else math.inf
        raise InfeasibleTemperatures(
            f"lambda' = {lambda_prime:g} is outside [0, 1 + eta) = [0, {limit:g}) at a WNR of {wnr_db:.2f} dB; "
            "choose one inside (0 is MMSE, 1 is ML)"
        )


def _feasible(lambda_prime: float, weight_variance: float, noise_variance: float) -> bool:
    """Whether `0 <= lambda' < 1 + eta`, for the pole as a float and for the denominator as it will be divided by.

    Rounding can put either on the wrong side: `0.1 - (0.1 / 0.3) 0.3` need not be zero.
    """
    below_pole = 0 <= lambda_prime < pole(weight_variance=weight_variance, noise_variance=noise_variance)
    return below_pole and (noise_variance == 0 or weight_variance + (1.0 - lambda_prime) * noise_variance > 0)


def noise_variance_of(wnr_db: float, weight_power: float) -> float:
    """The noise variance `sigma_z^2 = power / eta` that puts weights of this power at a WNR.

    >>> noise_variance_of(10.0, 2.5)
    0.25
    """
    check_variance(weight_power, "weight power")
    variance = weight_power / db_to_ratio(wnr_db)
    check_variance(variance, f"the noise variance at {wnr_db} dB")
    return variance


def noise_variance_within(wnr_db: float, received_variance: float) -> float:
    """The share of noise in what was received at a WNR: `sigma_z^2 = var(r) / (1 + eta)`.

    >>> noise_variance_within(0.0, 3.0)
    1.5
    """
    check_variance(received_variance, "the variance of the received weights")
    return received_variance / (1.0 + db_to_ratio(wnr_db))


def require_count(name: str, value: int, *, at_least: int = 1) -> None:
    """Refuse what is not a whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise InvalidConfig(
            f"{name} is {value!r}; it must be a whole number of at least {at_least}; give {name}={at_least} or more"
        )


def require_finite(name: str, value: float, *, above: float = -math.inf) -> None:
    """Refuse what is not a finite number above a limit."""
    if not (math.isfinite(value) and value > above):
        limit = "" if above == -math.inf else f" above {above}"
        raise InvalidConfig(
            f"{name} is {value}; it must be a finite number{limit}; the paper's examples lie between 0.1 and 2.25"
        )
