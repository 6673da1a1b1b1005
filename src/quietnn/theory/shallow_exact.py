"""The error of the shallow tanh network without a Taylor series: quadrature over u, its noise and x.

With `t = tanh(u x)`, `t_hat = tanh((theta r + rho) x)`, `r = u + du ~ N(0, S)`, the moments of v in closed form:

    Dbar = N E[(theta^2 S + rho^2) t_hat^2 - 2 theta sw t t_hat + sw t^2] + N (N - 1) rho^2 E_x[(E t_hat)^2]

`E[t | r, x]` depends on neither theta nor rho, and `u | r ~ N(sw r / S, sw sz / S)`, so the double Gaussian
integral is done once and every point of a surface costs a single one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietnn.theory.quadrature import Rule, standard_normal_nodes, uniform_nodes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Accuracy:
    """How finely to integrate; the defaults give a relative error below 1e-9 up to `c sqrt(S) = 4`.

    Args:
        num_normal_nodes: nodes over r, and over u given r.
        num_uniform_nodes: nodes over half of the interval of x; the other half is its mirror image.
        rule: for the Gaussian variables.
    """

    num_normal_nodes: int = 160
    num_uniform_nodes: int = 24
    rule: Rule = "equispaced"


def shallow_error(
    theta: Any,
    rho: Any,
    *,
    weight_variance: float,
    noise_variance: float,
    num_hidden: int,
    input_limit: float,
    accuracy: Accuracy = Accuracy(),  # noqa: B008 (frozen)
) -> Any:
    """The expected squared output error of `y = sum_i v_i tanh(u_i x)` after `theta r + rho`, by quadrature.

    Args:
        theta: the multiplier; a float or an array that broadcasts with `rho`.
        rho: the offset; a float or an array.
        weight_variance: `sw` of u and v.
        noise_variance: `sz` on u and v.
        num_hidden: `N`.
        input_limit: `c` of `x ~ U(-c, c)`.
        accuracy: how finely to integrate.

    >>> round(shallow_error(1.0, 0.0, weight_variance=1.0, noise_variance=0.5, num_hidden=10, input_limit=0.4), 3)
    0.535
    """
    sw, received_variance = weight_variance, weight_variance + noise_variance
    nodes, weights = standard_normal_nodes(accuracy.num_normal_nodes, rule=accuracy.rule)
    r = np.sqrt(received_variance) * nodes
    x, x_weights = uniform_nodes(accuracy.num_uniform_nodes, upper=input_limit)
    clean = np.tanh(np.sqrt(sw) * np.outer(x, nodes)) ** 2 @ weights
    theta, rho = np.broadcast_arrays(np.asarray(theta, dtype=float), np.asarray(rho, dtype=float))
    result = np.full(theta.shape, num_hidden * sw * float(x_weights @ clean))
    # One node of x at a time keeps a surface of thousands of points within a few megabytes.
    for position, x_weight in zip(x, x_weights, strict=True):
        target = _conditional_mean(r, position, sw, noise_variance, nodes, weights)
        t_hat = np.tanh((theta[..., None] * r + rho[..., None]) * position)
        own = (theta**2 * received_variance + rho**2) * (t_hat**2 @ weights)
        own = own - 2 * theta * sw * (t_hat @ (weights * target))
        others = (num_hidden - 1) * (rho * (t_hat @ weights)) ** 2
        result = result + x_weight * num_hidden * (own + others)
    return result if np.ndim(result) else float(result)


def shallow_optimal_theta(
    *,
    weight_variance: float,
    noise_variance: float,
    input_limit: float,
    accuracy: Accuracy = Accuracy(),  # noqa: B008 (frozen)
) -> float:
    """The multiplier with the least error at `rho = 0`, by bisection on the slope; N does not matter.

    >>> round(shallow_optimal_theta(weight_variance=1.0, noise_variance=0.5, input_limit=0.4), 3)
    0.658
    """
    slope = _slope_along_theta(weight_variance, noise_variance, input_limit, accuracy)
    low, high = 0.0, 1.0
    while slope(high) < 0:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2


def _slope_along_theta(
    weight_variance: float, noise_variance: float, input_limit: float, accuracy: Accuracy
) -> Callable[[float], float]:
    """The derivative of the error along theta at `rho = 0`, divided by `2 N`, as a function of theta."""
    sw, received_variance = weight_variance, weight_variance + noise_variance
    nodes, weights = standard_normal_nodes(accuracy.num_normal_nodes, rule=accuracy.rule)
    r = np.sqrt(received_variance) * nodes
    x, x_weights = uniform_nodes(accuracy.num_uniform_nodes, upper=input_limit)
    target = np.stack([_conditional_mean(r, at, sw, noise_variance, nodes, weights) for at in x], axis=1)
    products = np.outer(r, x)

    def slope(theta: float) -> float:
        t_hat = np.tanh(theta * products)
        t_hat_slope = (1 - t_hat**2) * products
        integrand = theta * received_variance * t_hat * (t_hat + theta * t_hat_slope)
        integrand = integrand - sw * target * (t_hat + theta * t_hat_slope)
        return float(weights @ integrand @ x_weights)

    return slope


def _conditional_mean(
    r: Array, x: float, weight_variance: float, noise_variance: float, nodes: Array, weights: Array
) -> Array:
    """`E[tanh(u x) | r]` for every r."""
    shrinkage = weight_variance / (weight_variance + noise_variance)
    u = shrinkage * r[:, None] + np.sqrt(shrinkage * noise_variance) * nodes
    result: Array = np.tanh(u * x) @ weights
    return result
