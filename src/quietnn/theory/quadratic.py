"""Theorem 1: the quadratic network `y = (x - c e)^T diag(w)^2 (x - c e)` and its whole error surface."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from quietnn.errors import InvalidConfig
from quietnn.theory.family import check_variance, require_count, require_finite

Constants = Literal["corrected", "printed"]
Kind = Literal["maximum", "minimum", "saddle", "degenerate"]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class CriticalPoint:
    """A point of the error surface that can hold its least value, with its error and its kind."""

    name: str
    theta: float
    rho: float
    error: float
    kind: Kind


@dataclass(frozen=True)
class QuadraticNetwork:
    """Inputs `x_i ~ U(-1, 1)`, weights `w_i ~ N(0, sw)`, noise `z_i ~ N(0, sz)`; Definition 3, Theorem 1.

    `constants="printed"` uses the paper's `C2 = (c^2 - 1/3)^2` in place of `(E (x - c)^2)^2 = (c^2 + 1/3)^2`.

    Args:
        weight_variance: `sw`, above zero.
        noise_variance: `sz`, zero or more.
        dimension: `d`, the number of weights.
        offset: `c`, the point where the network's output vanishes.
        constants: which `C2` to use.

    >>> paper = QuadraticNetwork(weight_variance=2.25, noise_variance=1.0, dimension=5, offset=0.1)
    >>> round(paper.optimal_theta, 3), round(paper.gain, 3)
    (0.781, 0.586)
    """

    weight_variance: float
    noise_variance: float
    dimension: int
    offset: float
    constants: Constants = "corrected"

    def __post_init__(self) -> None:
        require_finite("weight_variance", self.weight_variance, above=0.0)
        check_variance(self.noise_variance, "noise_variance")
        require_count("dimension", self.dimension)
        require_finite("offset", self.offset)
        if self.constants not in get_args(Constants):
            raise InvalidConfig(f"constants is {self.constants!r}; it must be one of {get_args(Constants)}")

    @property
    def received_variance(self) -> float:
        """The variance `S = sw + sz` of a received weight."""
        return self.weight_variance + self.noise_variance

    @property
    def fourth_moment(self) -> float:
        """`C1 = E (x - c)^4 = c^4 + 2 c^2 + 1/5`."""
        return self.offset**4 + 2 * self.offset**2 + 1 / 5

    @property
    def squared_second_moment(self) -> float:
        """`C2 = (E (x - c)^2)^2`: `(c^2 + 1/3)^2`, or `(c^2 - 1/3)^2` as printed."""
        third = 1 / 3 if self.constants == "corrected" else -1 / 3
        return (self.offset**2 + third) ** 2

    @property
    def a(self) -> float:
        """`A = 3 C1 d + C2 d (d - 1)`, the paper's `C1'`."""
        d = self.dimension
        return 3 * self.fourth_moment * d + self.squared_second_moment * d * (d - 1)

    @property
    def b(self) -> float:
        """`B = C1 d + C2 d (d - 1)`, the paper's `C2'`; `A - B = 2 C1 d` is always above zero."""
        d = self.dimension
        return self.fourth_moment * d + self.squared_second_moment * d * (d - 1)

    def error(self, theta: Any, rho: Any) -> Any:
        """The expected squared output error, on floats or arrays that broadcast; eq. 20.

        `Dbar = A [theta^4 S^2 - 2 theta^2 sw^2 + 2 theta^2 rho^2 S + sw^2]
        + B [rho^4 - 2 theta^2 sw sz - 2 sw rho^2]`

        >>> QuadraticNetwork(2.25, 1.0, 5, 0.1).error(theta=0.0, rho=1.5) > 0
        True
        """
        sw, sz, s = self.weight_variance, self.noise_variance, self.received_variance
        t, q = theta * theta, rho * rho
        return self.a * (t * t * s * s - 2 * t * sw * sw + 2 * t * q * s + sw * sw) + self.b * (
            q * q - 2 * t * sw * sz - 2 * sw * q
        )

    def gradient(self, theta: float, rho: float) -> Array:
        """`(d/dtheta, d/drho)` of the error; the paper's `d/drho` has `S^2` where `S` belongs."""
        sw, sz, s = self.weight_variance, self.noise_variance, self.received_variance
        t, q = theta * theta, rho * rho
        along_theta = 4 * theta * (self.a * (s * s * t + s * q - sw * sw) - self.b * sw * sz)
        along_rho = 4 * rho * (self.a * s * t + self.b * (q - sw))
        return np.array([along_theta, along_rho])

    def hessian(self, theta: float, rho: float) -> Array:
        """The matrix of second derivatives of the error, in the order theta, rho."""
        sw, sz, s = self.weight_variance, self.noise_variance, self.received_variance
        t, q = theta * theta, rho * rho
        theta_theta = 4 * (self.a * (3 * s * s * t + s * q - sw * sw) - self.b * sw * sz)
        rho_rho = 4 * (self.a * s * t + self.b * (3 * q - sw))
        theta_rho = 8 * self.a * s * theta * rho
        return np.array([[theta_theta, theta_rho], [theta_rho, rho_rho]])

    def critical_points(self) -> tuple[CriticalPoint, CriticalPoint, CriticalPoint, CriticalPoint]:
        """P1 to P4 of the quadrant `theta >= 0, rho >= 0`, eqs. 21 and 22.

        >>> [point.kind for point in QuadraticNetwork(2.25, 1.0, 5, 0.1).critical_points()]
        ['maximum', 'minimum', 'minimum', 'saddle']
        """
        sw, sz, s = self.weight_variance, self.noise_variance, self.received_variance
        return (
            self._point("P1", 0.0, 0.0),
            self._point("P2", 0.0, math.sqrt(sw)),
            self._point("P3", self.optimal_theta, 0.0),
            self._point("P4", math.sqrt(self.b / self.a * sw * sz) / s, sw / math.sqrt(s)),
        )

    def kind(self, theta: float, rho: float) -> Kind:
        """What the Hessian says of a critical point; "degenerate" where an eigenvalue vanishes."""
        # rho has the unit of a weight and theta none: measure rho in standard deviations before comparing.
        scale = np.array([1.0, math.sqrt(self.weight_variance)])
        low, high = np.linalg.eigvalsh(self.hessian(theta, rho) * np.outer(scale, scale))
        if min(abs(low), abs(high)) <= 1e-12 * max(abs(low), abs(high)):
            return "degenerate"
        if low > 0:
            return "minimum"
        return "maximum" if high < 0 else "saddle"

    @property
    def optimal_theta(self) -> float:
        """`theta* = sw / S * sqrt(1 + B sz / (A sw))`, P3 of eq. 22; `rho* = 0` goes with it, and so `beta* = 0`."""
        sw, sz = self.weight_variance, self.noise_variance
        return sw / self.received_variance * math.sqrt(1 + self.b * sz / (self.a * sw))

    @property
    def optimal_lambda_prime(self) -> float:
        """`lambda'* = 2 sw lambda*` of eq. 18, rearranged so that it holds at zero noise too."""
        sw, sz = self.weight_variance, self.noise_variance
        shrunk = self.a * sw + self.b * sz
        return self.received_variance * self.b / (shrunk * (1 + math.sqrt(self.a * sw / shrunk)))

    @property
    def optimal_lambda_(self) -> float:
        """`lambda* = lambda'* / (2 sw)`, eq. 18."""
        return self.optimal_lambda_prime / (2 * self.weight_variance)

    @property
    def ml_error(self) -> float:
        """The error of the received weights, `D_ML = A sz^2 + 4 C1 d sw sz`; eq. 37."""
        sw, sz = self.weight_variance, self.noise_variance
        return self.a * sz * sz + 4 * self.fourth_moment * self.dimension * sw * sz

    @property
    def optimal_error(self) -> float:
        """The error at P3, `(A - B) (2 A sw + (A + B) sz) sw^2 sz / (A S^2)`."""
        sw, sz, a, b = self.weight_variance, self.noise_variance, self.a, self.b
        return (a - b) * (2 * a * sw + (a + b) * sz) * sw * sw * sz / (a * self.received_variance**2)

    @property
    def gain(self) -> float:
        """The share of the ML error that P3 removes, `(D_ML - D_opt) / D_ML`; eq. 19."""
        sw, sz, a, b = self.weight_variance, self.noise_variance, self.a, self.b
        numerator = (2 * a * sw - b * sw + a * sz) ** 2 * sz
        return numerator / (a * self.received_variance**2 * (2 * a * sw - 2 * b * sw + a * sz))

    def best_feasible(self) -> CriticalPoint:
        """The least error over `lambda' >= 0`, that is `theta >= sw / S`, and any beta.

        It is P3 as long as `sz / sw <= (A + sqrt(A B)) / B`. Above that noise the edge `lambda' = 0` with
        `rho^2 = sw - A sw^2 / (B S)` has the smaller error, which the theorem overlooks.
        """
        sw, sz, s = self.weight_variance, self.noise_variance, self.received_variance
        a, b = self.a, self.b
        if sz * b <= sw * (a + math.sqrt(a * b)):
            return self.critical_points()[2]
        theta, rho = sw / s, math.sqrt(sw - a * sw * sw / (b * s))
        return CriticalPoint("edge", theta, rho, float(self.error(theta, rho)), "minimum")

    def _point(self, name: str, theta: float, rho: float) -> CriticalPoint:
        return CriticalPoint(name, theta, rho, float(self.error(theta, rho)), self.kind(theta, rho))
