"""The paper's denoisers: one affine map per group, four names for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig, check_is
from quietnn.moments import WeightStatistics
from quietnn.theory.family import Form, affine_coefficients

_ROW = 1 << 16
"""16-bit weights that one thread maps at a time."""


@dataclass(frozen=True)
class Temperatures:
    """The two knobs of the family: `lambda' = 2 sigma_w^2 lambda` and `beta` (eq. 13).

    >>> Temperatures(1.0) == ML, Temperatures(0.0) == MMSE
    (True, True)
    """

    lambda_prime: float
    beta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what are not two numbers."""
        for name in ("lambda_prime", "beta"):
            check_is(getattr(self, name), Real, name, "give two numbers: Temperatures(0.5, 0.0)")


ML = Temperatures(1.0, 0.0)
MMSE = Temperatures(0.0, 0.0)


@dataclass(frozen=True)
class AffineDenoiser:
    """The map `w_hat = theta r + rho` of one group.

    Attributes:
        theta: the multiplier; where the noise differs within the group, that at its mean.
        rho: the offset; the same.
        members: the map of each tensor by name, where the noise differs within the group.

    >>> AffineDenoiser(theta=0.5, rho=1.0)(torch.tensor([2.0, 4.0]))
    tensor([2., 3.])
    """

    theta: float
    rho: float
    members: "Mapping[str, TensorMap] | None" = field(default=None, repr=False, compare=False)

    def on(self, name: str) -> "TensorMap":
        """The map of one tensor of the group."""
        return self if self.members is None else self.members[name]

    @property
    def is_identity(self) -> bool:
        """Whether the input comes back bit for bit."""
        return self.theta == 1.0 and self.rho == 0.0

    @torch.no_grad()
    def __call__(self, received: Tensor, out: Tensor | None = None) -> Tensor:
        """Denoise a tensor, into `out` if given (which may be `received` itself).

        One pass at the speed of memory; 16-bit tensors are computed in float32 and rounded once.
        """
        out = torch.empty_like(received) if out is None else out
        if self.is_identity:
            return out if out is received else out.copy_(received)
        if received.dtype in (torch.float32, torch.float64):
            rho = torch.tensor(self.rho, dtype=received.dtype, device=received.device)
            return torch.add(rho, received, alpha=self.theta, out=out)
        rho = torch.tensor(self.rho, device=received.device)
        if received.device.type != "cpu" or not (received.is_contiguous() and out.is_contiguous()):
            return out.copy_(torch.add(rho, received.float(), alpha=self.theta))
        whole = received.numel() // _ROW * _ROW
        source, sink = received.view(-1), out.view(-1)
        _normalise(source[:whole].view(1, -1, _ROW), sink[:whole].view(1, -1, _ROW), self.theta, self.rho)
        _normalise(source[whole:].view(1, 1, -1), sink[whole:].view(1, 1, -1), self.theta, self.rho)
        return out


def _normalise(source: Tensor, sink: Tensor, theta: float, rho: float) -> None:
    """Map 16-bit weights, shaped (1, rows, weights), in float32: what a fixed batch normalisation of each row does.

    It is the one kernel that widens, multiplies, adds and rounds in a single pass; in steps it takes four times as
    long, and threads that stream a file wait for each other at every step.
    """
    if source.numel():
        zeros, ones = torch.zeros(source.shape[1]), torch.ones(source.shape[1])
        unused = source.new_empty(0, dtype=torch.float32)
        torch.native_batch_norm(
            source, ones * theta, ones * rho, zeros, ones, False, 0.0, 0.0, out=(sink, unused, unused.clone())
        )


TensorMap = Callable[[Tensor, Tensor | None], Tensor]
"""Denoises one tensor, into another if given."""


def denoiser_for(
    temperatures: Temperatures,
    statistics: WeightStatistics,
    noise_variance: float,
    *,
    form: Form | str = Form.CENTRED,
) -> AffineDenoiser:
    """The member of the family with these temperatures, for a group with these statistics (eqs. 10, 13)."""
    theta, rho = affine_coefficients(
        temperatures.lambda_prime,
        temperatures.beta,
        weight_variance=statistics.variance,
        noise_variance=noise_variance,
        weight_mean=statistics.mean,
        form=form,
    )
    return AffineDenoiser(theta, rho)


def ml(statistics: WeightStatistics, noise_variance: float) -> AffineDenoiser:
    """Maximum likelihood: `w_hat = r`, the weights as they came (eq. 4)."""
    return AffineDenoiser(1.0, 0.0)


def mmse(statistics: WeightStatistics, noise_variance: float) -> AffineDenoiser:
    """Minimum mean squared error, also MAP: `(sigma_w^2 r + sigma_z^2 mu_w) / (sigma_w^2 + sigma_z^2)` (eq. 8).

    >>> mmse(WeightStatistics(mean=1.0, variance=3.0, num_weights=10), noise_variance=1.0)
    AffineDenoiser(theta=0.75, rho=0.25)
    """
    return denoiser_for(MMSE, statistics, noise_variance)


def mmse_p(statistics: WeightStatistics, noise_variance: float, *, lambda_prime: float) -> AffineDenoiser:
    """With the population compensator `exp(lambda w^2)`: large weights count more (eq. 10).

    >>> mmse_p(WeightStatistics(mean=0.0, variance=3.0, num_weights=10), noise_variance=1.0, lambda_prime=2.0)
    AffineDenoiser(theta=1.5, rho=0.0)
    """
    return denoiser_for(Temperatures(lambda_prime), statistics, noise_variance)


def mmse_pb(statistics: WeightStatistics, noise_variance: float, *, lambda_prime: float, beta: float) -> AffineDenoiser:
    """With the bias compensator `exp(beta w)` as well (eq. 13).

    >>> mmse_pb(WeightStatistics(0.0, 3.0, 10), noise_variance=1.0, lambda_prime=1.0, beta=0.5)
    AffineDenoiser(theta=1.0, rho=0.5)
    """
    return denoiser_for(Temperatures(lambda_prime, beta), statistics, noise_variance)


@dataclass(frozen=True)
class Method:
    """One published method: how it is written, and which temperatures are left free."""

    function: Callable[..., AffineDenoiser]
    equation: str
    free: tuple[str, ...]
    fixed: Temperatures | None

    def temperatures(self, lambda_prime: float | None, beta: float | None) -> Temperatures:
        """The temperatures to use, given those the caller set; a missing or superfluous one is an error."""
        given = {"lambda_prime": lambda_prime, "beta": beta}
        name = self.function.__name__
        for key, value in given.items():
            if value is not None and key not in self.free:
                raise InvalidConfig(f"{name} takes no {key}, but got {value}; leave it out, or use mmse_pb")
            if value is None and key in self.free:
                raise InvalidConfig(f"{name} needs {key}; give a value, or find one with quietnn.tune")
        if self.fixed is not None:
            return self.fixed
        assert lambda_prime is not None
        return Temperatures(lambda_prime, beta or 0.0)


METHODS: dict[str, Method] = {
    "ml": Method(ml, "(4)", (), ML),
    "mmse": Method(mmse, "(8)", (), MMSE),
    "mmse_p": Method(mmse_p, "(10)", ("lambda_prime",), None),
    "mmse_pb": Method(mmse_pb, "(13)", ("lambda_prime", "beta"), None),
}
