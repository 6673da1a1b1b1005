"""The paper's denoisers: one affine map per group, four names for it; and one per weight, where the noise differs.

The derivation of the family (eqs. 10, 13) goes through for each weight by itself ("Noise that differs",
docs/reference/channels.md); the pole `lambda' = 1 + sigma_w^2 / max v_i` is that of the noisiest weight.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig, check_is
from quietnn.moments import WeightStatistics
from quietnn.noise import TensorNoise
from quietnn.theory.family import Form, affine_coefficients, check_lambda_prime

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
        theta: the multiplier. If the noise differs within the group, the multiplier at its mean.
        rho: the offset. If the noise differs within the group, the offset at its mean.
        members: the map of each tensor by name, if the noise differs within the group.

    >>> AffineDenoiser(theta=0.5, rho=1.0)(torch.tensor([2.0, 4.0]))
    tensor([2., 3.])
    """

    theta: float
    rho: float
    members: "Mapping[str, TensorMap] | None" = field(default=None, repr=False, compare=False)

    def on(self, name: str) -> "TensorMap":
        """The map of one tensor of the group."""
        return self if self.members is None else self.members[name]

    @torch.no_grad()
    def __call__(self, received: Tensor, out: Tensor | None = None) -> Tensor:
        """Denoise a tensor, into `out` if given (which may be `received` itself).

        One pass at the speed of memory; 16-bit tensors are computed in float32 and rounded once.
        """
        out = torch.empty_like(received) if out is None else out
        if self.theta == 1.0 and self.rho == 0.0:  # bit for bit
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


@dataclass(frozen=True)
class WeightwiseMap:
    """The map `w_hat_i = theta_i r_i + rho_i` of one tensor; both are numbers, or tensors that broadcast to it."""

    theta: TensorNoise
    rho: TensorNoise

    @torch.no_grad()
    def __call__(self, received: Tensor, out: Tensor | None = None) -> Tensor:
        """Denoise a tensor, into `out` if given; 16-bit tensors are computed in float32 and rounded once."""
        exact = torch.promote_types(received.dtype, torch.float32)
        theta, rho = (part.to(exact) if isinstance(part, Tensor) else part for part in (self.theta, self.rho))
        estimate = received.to(exact) * theta + rho
        return estimate.to(received.dtype) if out is None else out.copy_(estimate)


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
    return AffineDenoiser(*_coefficients(temperatures, statistics, noise_variance, form))


def weightwise_map(
    temperatures: Temperatures, statistics: WeightStatistics, noise: TensorNoise, *, form: Form | str = Form.CENTRED
) -> WeightwiseMap:
    """The same for each weight of a tensor by itself.

    >>> statistics = WeightStatistics(mean=0.0, variance=3.0, num_weights=10)
    >>> weightwise_map(Temperatures(0.0), statistics, torch.tensor([0.0, 1.0, 3.0])).theta
    tensor([1.0000, 0.7500, 0.5000], dtype=torch.float64)
    """
    if not isinstance(noise, Tensor):
        return WeightwiseMap(*_coefficients(temperatures, statistics, noise, form))
    form, noise = Form(form), noise.double()
    if form is not Form.UNCENTRED and temperatures == ML:
        return WeightwiseMap(1.0, 0.0)
    variance, lambda_prime = statistics.variance, temperatures.lambda_prime
    check_lambda_prime(lambda_prime, weight_variance=variance, noise_variance=float(noise.max()))
    silent = noise == 0  # without noise the weight itself, also where 0 / 0 would stand
    uncompensated = (1.0 - lambda_prime) * noise
    denominator = (variance + uncompensated).masked_fill(silent, 1.0)
    theta = torch.where(silent, 1.0, variance / denominator)
    rho = theta * noise * temperatures.beta
    if form is Form.CENTRED:
        rho = rho + uncompensated / denominator * statistics.mean
    elif form is Form.UNCENTRED:
        rho = rho + noise / denominator * statistics.mean
    return WeightwiseMap(theta, rho)


def _coefficients(
    temperatures: Temperatures, statistics: WeightStatistics, noise_variance: float, form: Form | str
) -> tuple[float, float]:
    return affine_coefficients(
        temperatures.lambda_prime,
        temperatures.beta,
        weight_variance=statistics.variance,
        noise_variance=noise_variance,
        weight_mean=statistics.mean,
        form=form,
    )


def ml(statistics: WeightStatistics, noise_variance: float) -> AffineDenoiser:
    """Maximum likelihood: `w_hat = r`, the received weights (eq. 4)."""
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


FREE = {"ml": (), "mmse": (), "mmse_p": ("lambda_prime",), "mmse_pb": ("lambda_prime", "beta")}
"""The published methods, and the temperatures that each leaves to its user."""


def temperatures_of(method: str, lambda_prime: float | None, beta: float | None) -> Temperatures:
    """The temperatures of a method, given those the caller set; a missing or superfluous one is an error."""
    if method not in FREE:
        raise InvalidConfig(f"there is no method {method!r}; choose one of {', '.join(FREE)}")
    for name, value in (("lambda_prime", lambda_prime), ("beta", beta)):
        if value is not None and name not in FREE[method]:
            raise InvalidConfig(f"{method} takes no {name}, but got {value}; leave it out, or use mmse_pb")
        if value is None and name in FREE[method]:
            raise InvalidConfig(f"{method} needs {name}; give a value, or find one with quietnn.tune")
    if method == "ml":
        return ML
    return Temperatures(lambda_prime or 0.0, beta or 0.0)
