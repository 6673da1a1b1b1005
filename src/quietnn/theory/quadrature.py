"""Expectations over Gaussian and uniform variables as weighted sums over a few nodes."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rule = Literal["equispaced", "gauss-hermite"]

_TAIL = 8.5  # standard deviations: the mass outside is 2e-17, below the rounding of a double


def standard_normal_nodes(num_nodes: int, *, rule: Rule = "equispaced") -> tuple[Array, Array]:
    """Nodes and weights for `E f(Z)`, `Z ~ N(0, 1)`; the weights sum to one.

    Under a Gaussian the equispaced (trapezoidal) rule converges exponentially for every analytic f, as
    Gauss-Hermite does, but is less troubled by the poles of tanh: at `c sqrt(S) = 4` and 128 nodes it is
    off by 2e-9 where Gauss-Hermite is off by 3e-5. It is therefore the default.

    >>> nodes, weights = standard_normal_nodes(64)
    >>> round(float(weights @ nodes**4), 12)
    3.0
    >>> nodes, weights = standard_normal_nodes(8, rule="gauss-hermite")
    >>> round(float(weights @ nodes**4), 12)
    3.0
    """
    if rule == "gauss-hermite":
        nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
        return nodes, weights / math.sqrt(2 * math.pi)
    nodes = np.linspace(-_TAIL, _TAIL, num_nodes)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def uniform_nodes(num_nodes: int, *, upper: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights for `E f(X)`, `X ~ U(0, upper)`; the weights sum to one.

    >>> nodes, weights = uniform_nodes(4, upper=3.0)
    >>> round(float(weights @ nodes**2), 12)
    3.0
    """
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return upper * (nodes + 1) / 2, weights / 2
