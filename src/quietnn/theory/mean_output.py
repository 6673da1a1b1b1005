"""Lemma 1: the mean output of the denoised shallow network over the noise, by Taylor series and exactly."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietnn.theory.checks import require_variances
from quietnn.theory.quadrature import standard_normal_nodes

Array = NDArray[np.float64]


def mean_output_taylor(
    u: ArrayLike, v: ArrayLike, x: float, *, theta: float, rho: float, noise_variance: float
) -> float:
    """The second-order form `y_0 + sz sum_i (theta v_i + rho) theta^2 x^2 g_i''`, eq. 27.

    Here `g_i = tanh((theta u_i + rho) x)`, `y_0 = sum_i (theta v_i + rho) g_i` and `g_i'' = g_i^3 - g_i`
    (half the second derivative of tanh, as the paper defines it).

    >>> round(mean_output_taylor([0.5], [2.0], 0.4, theta=1.0, rho=0.0, noise_variance=0.0), 6)  # 2 tanh(0.2)
    0.394751
    """
    require_variances(weight_variance=1.0, noise_variance=noise_variance)
    outer, inner = theta * _vector(v) + rho, theta * _vector(u) + rho
    g = np.tanh(inner * x)
    return float(outer @ g + noise_variance * theta**2 * x**2 * (outer @ (g**3 - g)))


def mean_output_exact(
    u: ArrayLike,
    v: ArrayLike,
    x: float,
    *,
    theta: float,
    rho: float,
    noise_variance: float,
    num_nodes: int = 160,
) -> float:
    """The mean itself: `sum_i (theta v_i + rho) E tanh((theta (u_i + du) + rho) x)`, `du ~ N(0, sz)`.

    The noise on v is independent of that on u and has no mean, so it drops out.

    >>> round(mean_output_exact([0.0], [1.0], 0.4, theta=1.0, rho=0.0, noise_variance=0.5), 12)
    0.0
    """
    require_variances(weight_variance=1.0, noise_variance=noise_variance)
    nodes, weights = standard_normal_nodes(num_nodes)
    outer, received = theta * _vector(v) + rho, _vector(u)[:, None] + np.sqrt(noise_variance) * nodes
    return float(outer @ (np.tanh((theta * received + rho) * x) @ weights))


def _vector(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)
