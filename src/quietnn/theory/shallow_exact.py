"""The shallow tanh network without a Taylor series: its error, its best multiplier and its mean output by quadrature.

With `t = tanh(u x)`, `t_hat = tanh((theta r + rho) x)`, `r = u + du ~ N(0, S)`, the moments of v in closed form:

    Dbar = N E[(theta^2 S + rho^2) t_hat^2 - 2 theta sw t t_hat + sw t^2] + N (N - 1) rho^2 E_x[(E t_hat)^2]

`E[t | r, x]` depends on neither theta nor rho, and `u | r ~ N(sw r / S, sw sz / S)`, so the double Gaussian
integral is done once and every point of a surface costs a single one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietnn.theory.family import check_variance

Array = NDArray[np.float64]

NUM_NORMAL_NODES, NUM_UNIFORM_NODES = 160, 24
"""Nodes over r, and over half of the interval of x (the other half is its mirror image).

They give a relative error below 1e-9 up to `c sqrt(S) = 4`.
"""

_TAIL = 8.5  # standard deviations: the mass outside is 2e-17, below the rounding of a double


def shallow_error(
    theta: Any, rho: Any, *, weight_variance: float, noise_variance: float, num_hidden: int, input_limit: float
) -> Any:
    """The expected squared output error of `ShallowNetwork`, for floats or arrays of theta and rho that broadcast."""
    sw, received_variance = weight_variance, weight_variance + noise_variance
    nodes, weights = _normal_nodes()
    r = np.sqrt(received_variance) * nodes
    x, x_weights = _uniform_nodes(input_limit)
    clean = np.tanh(np.sqrt(sw) * np.outer(x, nodes)) ** 2 @ weights
    theta, rho = np.broadcast_arrays(np.asarray(theta, dtype=float), np.asarray(rho, dtype=float))
    result = np.full(theta.shape, num_hidden * sw * float(x_weights @ clean))
    # One node of x at a time keeps a surface of thousands of points within a few megabytes.
    for position, x_weight in zip(x, x_weights, strict=True):
        target = _conditional_mean(r, position, sw, noise_variance)
        t_hat = np.tanh((theta[..., None] * r + rho[..., None]) * position)
        own = (theta**2 * received_variance + rho**2) * (t_hat**2 @ weights)
        own = own - 2 * theta * sw * (t_hat @ (weights * target))
        others = (num_hidden - 1) * (rho * (t_hat @ weights)) ** 2
        result = result + x_weight * num_hidden * (own + others)
    return result if np.ndim(result) else float(result)


def shallow_optimal_theta(weight_variance: float, noise_variance: float, input_limit: float) -> float:
    """The multiplier with the least error at `rho = 0`, by bisection on the slope; N does not matter."""
    slope = _slope_along_theta(weight_variance, noise_variance, input_limit)
    low, high = 0.0, 1.0
    while slope(high) < 0:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2


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
    Gauss-Hermite does, but is less troubled by the poles of tanh: at `c sqrt(S) = 4` and 128 nodes it is
    off by 2e-9 where Gauss-Hermite is off by 3e-5.
    """
    nodes = np.linspace(-_TAIL, _TAIL, NUM_NORMAL_NODES)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def _uniform_nodes(upper: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights for `E f(X)`, `X ~ U(0, upper)`; the weights sum to one."""
    nodes, weights = np.polynomial.legendre.leggauss(NUM_UNIFORM_NODES)
    return upper * (nodes + 1) / 2, weights / 2


def _slope_along_theta(weight_variance: float, noise_variance: float, input_limit: float) -> Callable[[float], float]:
    """The derivative of the error along theta at `rho = 0`, divided by `2 N`, as a function of theta."""
    sw, received_variance = weight_variance, weight_variance + noise_variance
    nodes, weights = _normal_nodes()
    r = np.sqrt(received_variance) * nodes
    x, x_weights = _uniform_nodes(input_limit)
    target = np.stack([_conditional_mean(r, at, sw, noise_variance) for at in x], axis=1)
    products = np.outer(r, x)

    def slope(theta: float) -> float:
        t_hat = np.tanh(theta * products)
        t_hat_slope = (1 - t_hat**2) * products
        integrand = theta * received_variance * t_hat * (t_hat + theta * t_hat_slope)
        integrand = integrand - sw * target * (t_hat + theta * t_hat_slope)
        return float(weights @ integrand @ x_weights)

    return slope


def _conditional_mean(r: Array, x: float, weight_variance: float, noise_variance: float) -> Array:
    """`E[tanh(u x) | r]` for every r."""
    nodes, weights = _normal_nodes()
    shrinkage = weight_variance / (weight_variance + noise_variance)
    u = shrinkage * r[:, None] + np.sqrt(shrinkage * noise_variance) * nodes
    result: Array = np.tanh(u * x) @ weights
    return result
