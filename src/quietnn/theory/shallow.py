"""Theorem 2: the shallow tanh network `y = sum_i v_i tanh(u_i x)`, as printed, at leading order, and exact."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from quietnn.errors import InvalidConfig
from quietnn.theory.family import check_variance, lambda_prime_of, require_count, require_finite
from quietnn.theory.shallow_exact import shallow_error, shallow_optimal_theta

Form = Literal["exact", "leading", "printed", "printed_without_stray"]


@dataclass(frozen=True)
class ShallowNetwork:
    """N hidden units, input `x ~ U(-c, c)`, weights `u_i, v_i ~ N(0, sw)`, noise `N(0, sz)`; Definition 5.

    Every quantity comes in four forms:

    - `exact`: quadrature, the reference;
    - `leading`: the terms of order `c^2`, all of them;
    - `printed`: eq. 31 as it stands;
    - `printed_without_stray`: eq. 31 without its terms in rho that carry no factor of c (they belong to `c^6`).

    Args:
        weight_variance: `sw`, above zero.
        noise_variance: `sz`, zero or more.
        num_hidden: `N`; 10 gives the paper's numbers.
        input_limit: `c`, above zero.

    >>> paper = ShallowNetwork(weight_variance=1.0, noise_variance=0.5, num_hidden=10, input_limit=0.4)
    >>> round(paper.ml_error("printed"), 2), round(paper.optimal_error("printed"), 2)
    (0.53, 0.27)
    >>> round(paper.ml_error(), 3), round(paper.error(paper.optimal_theta("printed"), 0.0), 3)
    (0.535, 0.257)
    """

    weight_variance: float
    noise_variance: float
    num_hidden: int
    input_limit: float

    def __post_init__(self) -> None:
        require_finite("weight_variance", self.weight_variance, above=0.0)
        check_variance(self.noise_variance, "noise_variance")
        require_count("num_hidden", self.num_hidden)
        require_finite("input_limit", self.input_limit, above=0.0)

    @property
    def received_variance(self) -> float:
        """The variance `S = sw + sz` of a received weight."""
        return self.weight_variance + self.noise_variance

    def error(self, theta: Any, rho: Any, form: Form = "exact") -> Any:
        """The expected squared output error of the weights `theta r + rho`, on floats or arrays."""
        _require_form(form)
        if form == "exact":
            return shallow_error(theta, rho, **asdict(self))
        if form == "leading":
            return self._leading(theta, rho)
        stray = self._stray(theta, rho) if form == "printed" else 0.0
        return self._printed_without_stray(theta, rho) + stray

    def _leading(self, theta: Any, rho: Any) -> Any:
        """`N c^2/3 [(theta^2 S + rho^2)^2 - 2 theta^2 sw^2 + sw^2] + N (N - 1) c^2 rho^4 / 3`."""
        sw, n = self.weight_variance, self.num_hidden
        t, q = theta * theta, rho * rho
        own = (t * self.received_variance + q) ** 2 - 2 * t * sw * sw + sw * sw
        return n * self.input_limit**2 / 3 * (own + (n - 1) * q * q)

    def _printed_without_stray(self, theta: Any, rho: Any) -> Any:
        """Eq. 31 where every term has its `c^2`; it lacks `N c^2 theta^4 sz^2 / 3`."""
        sw, sz, n = self.weight_variance, self.noise_variance, self.num_hidden
        t, q = theta * theta, rho * rho
        own = sw * sw * (t * t - 2 * t + 1) + 2 * self.received_variance * t * q + 2 * sw * sz * t * t
        return n * self.input_limit**2 / 3 * (own + n * q * q)

    def _stray(self, theta: Any, rho: Any) -> Any:
        """The rest of eq. 31, `N (N - 1) (theta^2 rho^2 sw + rho^4 / 3)^2`, whose factor `c^6 / 7` is missing."""
        q = rho * rho
        return self.num_hidden * (self.num_hidden - 1) * (theta * theta * q * self.weight_variance + q * q / 3) ** 2

    def optimal_theta(self, form: Form = "exact") -> float:
        """The best multiplier, with `rho* = 0` and so `beta* = 0` in every form.

        `sqrt(sw / (sw + 2 sz))` as printed, `sw / S` (plain MMSE) at leading order; the exact one by bisection.
        """
        _require_form(form)
        if form == "exact":
            return shallow_optimal_theta(self.weight_variance, self.noise_variance, self.input_limit)
        if form == "leading":
            return self.weight_variance / self.received_variance
        return math.sqrt(self.weight_variance / (self.weight_variance + 2 * self.noise_variance))

    def optimal_lambda_prime(self, form: Form = "exact") -> float:
        """`1 + (sw / sz) (1 - 1 / theta*)`: zero at leading order, `sz / (S + sqrt(S^2 - sz^2))` as printed."""
        variances = {"weight_variance": self.weight_variance, "noise_variance": self.noise_variance}
        return lambda_prime_of(self.optimal_theta(form), **variances)

    def ml_error(self, form: Form = "exact") -> float:
        """`D_ML`: `2 N c^2 sw sz / 3` as printed, `N c^2 (S^2 - sw^2) / 3` at leading order."""
        return float(self.error(1.0, 0.0, form))

    def optimal_error(self, form: Form = "exact") -> float:
        """`D_pb`: the form's error at the form's own optimum.

        `2 N c^2 sz sw^2 / (3 (sw + 2 sz))` as printed, `N c^2 sw^2 (1 - sw^2 / S^2) / 3` at leading order.
        """
        return float(self.error(self.optimal_theta(form), 0.0, form))

    def gain(self, form: Form = "exact") -> float:
        """`(D_ML - D_pb) / D_ML`: eq. 32's `2 sz / (sw + 2 sz)` as printed, `1 - sw^2 / S^2` at leading order."""
        ml_error = self.ml_error(form)
        return (ml_error - self.optimal_error(form)) / ml_error if self.noise_variance > 0 else 0.0


def _require_form(form: str) -> None:
    if form not in get_args(Form):
        raise InvalidConfig(f"form is {form!r}; it must be one of {get_args(Form)}")
