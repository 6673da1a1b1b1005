"""The schemes that noisy training compares: how a server estimates the sum of the updates, by name."""

from quietnn.federated.carried import Carried
from quietnn.federated.estimators import Affine, Estimator, Tuned
from quietnn.federated.planned import Planned
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.theory.family import lambda_prime_of
from quietnn.units import db_to_ratio

SCHEMES: dict[str, Estimator] = {
    "ml": Affine(ML),
    "mmse": Affine(MMSE),
    "mmse_layerwise": Affine(MMSE, "layerwise"),
    "mmse_p": Tuned(with_beta=False),
    "mmse_pb": Tuned(),
    "mmse_pb_layerwise": Tuned(groups="layerwise"),
    "mmse_pb_oracle": Tuned(oracle=True),
    "carried": Carried(),
    "planned": Planned(),
    "planned_bold": Planned(noise_to_weights=2.0),
    "planned_layerwise": Planned(groups="layerwise"),
}
"""Schemes that need nothing but the round at hand and what they remember. Those called oracle see test examples."""

FIXED = "mmse_pb_fixed"
"""Temperatures fixed over the run, chosen by the final accuracy on validation examples with another seed."""

FIXED_ORACLE = "mmse_pb_fixed_oracle"
"""The same, chosen by the final accuracy on test examples, as the paper does."""

CLEAN = "clean"
"""A federation without noise, at +inf dB."""

METHODS = (*SCHEMES, FIXED, FIXED_ORACLE)
"""Every scheme that a configuration can name."""


def fixed_temperatures(theta: float, beta: float, wnr_db: float) -> Temperatures:
    """The temperatures with multiplier `theta` at this WNR, the same in all rounds: `lambda' = 1 + eta (1 - 1/theta)`.

    >>> fixed_temperatures(1.0, 0.0, -10.0) == ML
    True
    """
    return Temperatures(lambda_prime_of(theta, weight_variance=db_to_ratio(wnr_db), noise_variance=1.0), beta)
