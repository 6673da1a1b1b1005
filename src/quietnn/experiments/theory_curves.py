"""The data of the paper's figures 2, 3, 5 and 6 as records that a report can draw without computing anything."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietnn.records import Record
from quietnn.theory.family import affine_coefficients, pole, region
from quietnn.theory.montecarlo import simulate_shallow
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.theory.shallow import ShallowNetwork

Array = NDArray[np.float64]

NUM_SURFACE_SAMPLES = 20_000  # per point of the simulated surface, if num_samples allows


def figure_records(
    quadratic: QuadraticNetwork, shallow: ShallowNetwork, *, seed: int, num_samples: int
) -> Iterator[Record]:
    """Yield the records of the four figures."""
    yield from relation_records(shallow.weight_variance, shallow.noise_variance)
    yield from quadratic_records(quadratic)
    yield from shallow_surface_records(shallow, seed=seed, num_samples=min(num_samples, NUM_SURFACE_SAMPLES))
    yield against_input_limit_record(shallow, seed=seed + 1, num_samples=num_samples)


def relation_records(weight_variance: float, noise_variance: float) -> Iterator[Record]:
    """Figure 2: theta along lambda', and the named estimators."""
    variances = {"weight_variance": weight_variance, "noise_variance": noise_variance}
    limit = pole(weight_variance=weight_variance, noise_variance=noise_variance)

    def theta_at(lambda_prime: float) -> float:
        return affine_coefficients(lambda_prime, 0.0, weight_variance=weight_variance, noise_variance=noise_variance)[0]

    axis = np.linspace(0.0, 0.95 * limit, 200).tolist()
    yield _record("relation", 2, **variances, pole=limit, lambda_prime=axis, theta=[theta_at(at) for at in axis])
    for name, at in (("MMSE", 0.0), ("MMSE_p", 0.5), ("ML", 1.0), ("MMSE_p", 1.0 + 0.4 * (limit - 1.0))):
        yield _record(
            "estimator",
            2,
            **variances,
            name=name,
            lambda_prime=at,
            theta=theta_at(at),
            region=region(at, weight_variance=weight_variance, noise_variance=noise_variance).value,
        )


def quadratic_records(network: QuadraticNetwork) -> Iterator[Record]:
    """Figure 3: the surface, its critical points and the ML point."""
    theta, rho = np.linspace(-1.2, 1.2, 97), np.linspace(-2.0, 2.0, 81)
    yield _surface(3, "quadratic", "corrected", theta, rho, network.error(theta[:, None], rho[None, :]))
    for point in network.critical_points():
        yield _record(
            "point", 3, name=point.name, theta=point.theta, rho=point.rho, error=point.error, point_kind=point.kind
        )
    yield _record("point", 3, name="ML", theta=1.0, rho=0.0, error=network.ml_error, point_kind="estimator")


def shallow_surface_records(network: ShallowNetwork, *, seed: int, num_samples: int) -> Iterator[Record]:
    """Figure 5: eq. 31, the same without its stray terms, the exact surface, and a simulated one."""
    theta, rho = np.linspace(0.0, 1.2, 61), np.linspace(-0.6, 0.6, 61)
    for form in ("printed", "printed_without_stray", "exact"):
        error = network.error(theta[:, None], rho[None, :], form)
        yield _surface(5, "shallow", form, theta, rho, error)
    theta, rho = theta[::3], rho[::3]
    simulated = simulate_shallow(network, theta[:, None], rho[None, :], seed=seed, num_samples=num_samples)
    record = _surface(5, "shallow", "simulated", theta, rho, simulated.mean)
    yield {**record, "num_samples": num_samples, "seed": seed}
    for name, at in (
        ("ML", 1.0),
        ("printed optimum", network.optimal_theta("printed")),
        ("exact optimum", network.optimal_theta()),
    ):
        error = float(network.error(at, 0.0))
        yield _record("point", 5, name=name, theta=at, rho=0.0, error=error, point_kind="estimator")


def against_input_limit_record(network: ShallowNetwork, *, seed: int, num_samples: int) -> Record:
    """Figure 6: the error of ML and of the paper's denoiser against c."""
    multipliers = {"ml": 1.0, "pb": network.optimal_theta("printed")}
    axis = np.linspace(0.0, 0.5, 21)[1:]
    series: dict[str, Any] = {"input_limit": [0.0, *axis.tolist()]}
    networks = [_with_limit(network, c) for c in axis.tolist()]
    for name, theta in multipliers.items():
        for form in ("printed", "leading", "exact"):
            errors = [float(at.error(theta, 0.0, form)) for at in networks]
            series[f"{name}_{form}"] = [0.0, *errors]
    points = axis[1::2].tolist()
    thetas = np.array(list(multipliers.values()))
    estimates = [
        simulate_shallow(_with_limit(network, c), thetas, 0.0, seed=seed + k, num_samples=num_samples)
        for k, c in enumerate(points)
    ]
    series["simulated_input_limit"] = points
    for k, name in enumerate(multipliers):
        series[f"{name}_simulated"] = [float(estimate.mean[k]) for estimate in estimates]
        series[f"{name}_standard_error"] = [float(estimate.standard_error[k]) for estimate in estimates]
    parameters = {
        "weight_variance": network.weight_variance,
        "noise_variance": network.noise_variance,
        "num_hidden": network.num_hidden,
    }
    return _record("against_c", 6, **parameters, num_samples=num_samples, seed=seed, **series)


def _with_limit(network: ShallowNetwork, input_limit: float) -> ShallowNetwork:
    return ShallowNetwork(network.weight_variance, network.noise_variance, network.num_hidden, input_limit)


def _surface(figure: int, network: str, form: str, theta: Array, rho: Array, error: Array) -> Record:
    """A surface as nested lists, a row per theta; six digits are more than a figure shows."""
    rows = [[float(f"{value:.6g}") for value in row] for row in error]
    axes = {"theta": [round(float(at), 9) for at in theta], "rho": [round(float(at), 9) for at in rho]}
    return _record("surface", figure, network=network, form=form, **axes, error=rows)


def _record(kind: str, figure: int, **values: Any) -> Record:
    return {"experiment": "theory", "kind": kind, "figure": figure, **values}
