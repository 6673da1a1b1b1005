"""Theorem 2: the shallow tanh network `y = sum_i v_i tanh(u_i x)`, as printed, at leading order, and exact; Lemma 1.

The exact error knows no Taylor series. With `t = tanh(u x)`, `t_hat = tanh((theta r + rho) x)`, `r = u + du ~ N(0, S)`
and the moments of v in closed form:

    Dbar = N E[(theta^2 S + rho^2) t_hat^2 - 2 theta sw t t_hat + sw t^2] + N (N - 1) rho^2 E_x[(E t_hat)^2]

`E[t | r, x]` depends on neither theta nor rho, and `u | r ~ N(sw r / S, sw sz / S)`, so the double Gaussian
integral is done once and every point of a surface costs a single one.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietnn.errors import InvalidConfig
from quietnn.theory.family import check_variance, lambda_prime_of, require_count, require_finite

Form = Literal["exact", "leading", "printed", "printed_without_stray"]
Array = NDArray[np.float64]

NUM_NORMAL_NODES, NUM_UNIFORM_NODES = 160, 24
"""Nodes over r, and over half of the interval of x (the other half is its mirror image).

They give a relative error below 1e-9 up to `c sqrt(S) = 4`.
"""

_TAIL = 8.5  # standard deviations: the mass outside is 2e-17, below the rounding of a double
_STEP = 1e-4  # of theta, for the slope of the error; the root is off by its square


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
            return self._exact(theta, rho)
        if form == "leading":
            return self._leading(theta, rho)
        stray = self._stray(theta, rho) if form == "printed" else 0.0
        return self._printed_without_stray(theta, rho) + stray

    def _exact(self, theta: Any, rho: Any) -> Any:
        """The error by quadrature; see the head of this file."""
        sw, sz, s, n = self.weight_variance, self.noise_variance, self.received_variance, self.num_hidden
        nodes, weights = _normal_nodes()
        r = np.sqrt(s) * nodes
        x, x_weights = _uniform_nodes(self.input_limit)
        clean = np.tanh(np.sqrt(sw) * np.outer(x, nodes)) ** 2 @ weights
        theta, rho = np.broadcast_arrays(np.asarray(theta, dtype=float), np.asarray(rho, dtype=float))
        result = np.full(theta.shape, n * sw * float(x_weights @ clean))
        # One node of x at a time keeps a surface of thousands of points within a few megabytes.
        for position, x_weight in zip(x, x_weights, strict=True):
            target = _conditional_mean(r, position, sw, sz)
            t_hat = np.tanh((theta[..., None] * r + rho[..., None]) * position)
            own = (theta**2 * s + rho**2) * (t_hat**2 @ weights)
            own = own - 2 * theta * sw * (t_hat @ (weights * target))
            others = (n - 1) * (rho * (t_hat @ weights)) ** 2
            result = result + x_weight * n * (own + others)
        return result if np.ndim(result) else float(result)

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
            return self._exact_optimal_theta()
        if form == "leading":
            return self.weight_variance / self.received_variance
        return math.sqrt(self.weight_variance / (self.weight_variance + 2 * self.noise_variance))

    def _exact_optimal_theta(self) -> float:
        """By bisection on the slope of the error at `rho = 0`."""

        def falls(theta: float) -> bool:
            before, after = self._exact(np.array([theta - _STEP, theta + _STEP]), 0.0)
            return bool(after < before)

        low, high = 0.0, 1.0  # saturation only shrinks: the optimum lies below that of the leading order
        while high - low > 1e-10 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if falls(middle) else (low, middle)
        return (low + high) / 2

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


def mean_output_taylor(
    u: ArrayLike, v: ArrayLike, x: float, *, theta: float, rho: float, noise_variance: float
) -> float:
    """Lemma 1, the mean output over the noise: `y_0 + sz sum_i (theta v_i + rho) theta^2 x^2 g_i''`, eq. 27.

    Here `g_i = tanh((theta u_i + rho) x)`, `y_0 = sum_i (theta v_i + rho) g_i` and `g_i'' = g_i^3 - g_i`
    (half the second derivative of tanh, as the paper defines it).

    >>> round(mean_output_taylor([0.5], [2.0], 0.4, theta=1.0, rho=0.0, noise_variance=0.0), 6)  # 2 tanh(0.2)
    0.394751
    """
    check_variance(noise_variance, "noise_variance")
    outer, inner = theta * _vector(v) + rho, theta * _vector(u) + rho
    g = np.tanh(inner * x)
    return float(outer @ g + noise_variance * theta**2 * x**2 * (outer @ (g**3 - g)))


def mean_output_exact(
    u: ArrayLike, v: ArrayLike, x: float, *, theta: float, rho: float, noise_variance: float
) -> float:
    """The mean itself: `sum_i (theta v_i + rho) E tanh((theta (u_i + du) + rho) x)`, `du ~ N(0, sz)`.

    The noise on v is independent of that on u and has no mean, so it drops out.

    >>> round(mean_output_exact([0.0], [1.0], 0.4, theta=1.0, rho=0.0, noise_variance=0.5), 12)
    0.0
    """
    check_variance(noise_variance, "noise_variance")
    nodes, weights = _normal_nodes()
    outer, received = theta * _vector(v) + rho, _vector(u)[:, None] + np.sqrt(noise_variance) * nodes
    return float(outer @ (np.tanh((theta * received + rho) * x) @ weights))


def _vector(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def _normal_nodes() -> tuple[Array, Array]:
    """Nodes and weights for `E f(Z)`, `Z ~ N(0, 1)`; the weights sum to one.

    Under a Gaussian the equispaced (trapezoidal) rule converges exponentially for every analytic f, as
    Gauss-Hermite does. The poles of tanh trouble it less: at `c sqrt(S) = 4` and 128 nodes it is off by
    2e-9, Gauss-Hermite by 3e-5.
    """
    nodes = np.linspace(-_TAIL, _TAIL, NUM_NORMAL_NODES)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def _uniform_nodes(upper: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights for `E f(X)`, `X ~ U(0, upper)`; the weights sum to one."""
    nodes, weights = np.polynomial.legendre.leggauss(NUM_UNIFORM_NODES)
    return upper * (nodes + 1) / 2, weights / 2


def _conditional_mean(r: Array, x: float, weight_variance: float, noise_variance: float) -> Array:
    """`E[tanh(u x) | r]` for every r."""
    nodes, weights = _normal_nodes()
    shrinkage = weight_variance / (weight_variance + noise_variance)
    u = shrinkage * r[:, None] + np.sqrt(shrinkage * noise_variance) * nodes
    result: Array = np.tanh(u * x) @ weights
    return result
