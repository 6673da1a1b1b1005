"""Every closed form of the theory beside a simulation, and the data of the paper's figures 2, 3, 5 and 6."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietnn.records import Record
from quietnn.theory.errata import PAPER_QUADRATIC, PAPER_SHALLOW
from quietnn.theory.family import affine_coefficients, pole, region, require_count
from quietnn.theory.montecarlo import Estimate, compare, simulate_mean_output, simulate_shallow
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.theory.shallow import ShallowNetwork, mean_output_exact, mean_output_taylor

Array = NDArray[np.float64]

NUM_RANDOM = 5  # settings of each network beside the paper's
NUM_SURFACE_SAMPLES = 20_000  # per point of the simulated surface, if num_samples allows


def theory_records(*, seed: int = 0, num_samples: int = 200_000) -> Iterator[Record]:
    """One record for each check, then those the figures are drawn from; each simulation is of so many samples.

    A report can draw the figures without computing anything.
    """
    require_count("seed", seed, at_least=0)
    require_count("num_samples", num_samples, at_least=100)
    yield from _checks(seed, num_samples)
    first_seed = seed * 10_000 + 5_000  # the checks use those below
    yield from _relation(PAPER_SHALLOW)
    yield from _quadratic_surface(PAPER_QUADRATIC)
    yield from _shallow_surfaces(PAPER_SHALLOW, seed=first_seed, num_samples=min(num_samples, NUM_SURFACE_SAMPLES))
    yield _against_input_limit(PAPER_SHALLOW, seed=first_seed + 1, num_samples=num_samples)


def _checks(seed: int, num_samples: int) -> Iterator[Record]:
    """The paper's settings and others of each network, then Lemma 1, each with a seed of its own."""
    seeds = itertools.count(seed * 10_000)
    for setting, quadratic, theta, rho in _quadratic_settings(seed):
        given: Record = {**asdict(quadratic), "theta": theta, "rho": rho}
        del given["constants"]
        found = compare(quadratic, theta, rho, seed=next(seeds), num_samples=num_samples)
        yield _check("quadratic", setting, given, *found, seed)
    for setting, shallow, theta, rho in _shallow_settings(seed):
        given = {**asdict(shallow), "theta": theta, "rho": rho}
        found = compare(shallow, theta, rho, seed=next(seeds), num_samples=num_samples)
        leading = float(shallow.error(theta, rho, "leading"))
        yield {**_check("shallow", setting, given, *found, seed), "leading_order": leading}
    u, v = (0.9, -0.4, 1.6), (1.2, 0.7, -0.5)
    how = {"theta": 0.8, "rho": 0.1, "noise_variance": 0.5}
    for x in (0.1, 0.4, 1.0):
        estimate = simulate_mean_output(u, v, x, **how, seed=next(seeds), num_samples=num_samples)
        exact, taylor = mean_output_exact(u, v, x, **how), mean_output_taylor(u, v, x, **how)
        given = {"u": list(u), "v": list(v), "x": x, **how}
        yield _check("lemma 1", f"mean output at x = {x:g}", given, taylor, exact, estimate, seed)


def _quadratic_settings(seed: int) -> Iterator[tuple[str, QuadraticNetwork, float, float]]:
    paper = PAPER_QUADRATIC
    yield "figure 3, ML", paper, 1.0, 0.0
    yield "figure 3, MMSE", paper, paper.weight_variance / paper.received_variance, 0.0
    for point in paper.critical_points()[1:]:
        yield f"figure 3, {point.name}", paper, point.theta, point.rho
    yield "c = 1, ML", QuadraticNetwork(2.25, 1.0, 5, 1.0), 1.0, 0.0
    low = QuadraticNetwork(1.0, 5.0, 5, 0.1)
    for point in (low.critical_points()[2], low.best_feasible()):
        yield f"WNR -7 dB, {point.name}", low, point.theta, point.rho
    rng = np.random.default_rng([seed, 1])
    for number in range(1, NUM_RANDOM + 1):
        sw, sz, c = rng.uniform(0.2, 3.0), rng.uniform(0.1, 3.0), rng.uniform(-1.0, 1.0)
        network = QuadraticNetwork(sw, sz, int(rng.integers(1, 12)), c)
        yield f"random {number}", network, rng.uniform(0.2, 1.2), rng.uniform(-1.0, 1.0)


def _shallow_settings(seed: int) -> Iterator[tuple[str, ShallowNetwork, float, float]]:
    paper = PAPER_SHALLOW
    yield "figure 5, ML", paper, 1.0, 0.0
    yield "figure 5, MMSE_pb", paper, paper.optimal_theta("printed"), 0.0
    yield "figure 5, MMSE", paper, paper.optimal_theta("leading"), 0.0
    yield "figure 5, exact optimum", paper, paper.optimal_theta(), 0.0
    yield "figure 5, with an offset", paper, 0.8, 0.6
    yield "c = 0.1, ML", ShallowNetwork(1.0, 0.5, 10, 0.1), 1.0, 0.0
    rng = np.random.default_rng([seed, 2])
    for number in range(1, NUM_RANDOM + 1):
        sw, sz, c = rng.uniform(0.2, 2.0), rng.uniform(0.1, 2.0), rng.uniform(0.05, 1.0)
        network = ShallowNetwork(sw, sz, int(rng.integers(1, 13)), c)
        yield f"random {number}", network, rng.uniform(0.2, 1.2), rng.uniform(-0.6, 0.6)


def _check(
    network: str, setting: str, given: Record, printed: float, closed_form: float, estimate: Estimate, seed: int
) -> Record:
    return {
        "experiment": "theory",
        "kind": "check",
        "network": network,
        "setting": setting,
        **given,
        "closed_form": closed_form,
        "printed": printed,
        "monte_carlo": estimate.mean,
        "standard_error": estimate.standard_error,
        "z": estimate.z_score(closed_form),
        "num_samples": estimate.num_samples,
        "seed": seed,
        "z_printed": estimate.z_score(printed),
    }


def _relation(network: ShallowNetwork) -> Iterator[Record]:
    """Figure 2: theta along lambda', and the named estimators."""
    variances: dict[str, Any] = {"weight_variance": network.weight_variance, "noise_variance": network.noise_variance}
    limit = pole(**variances)

    def theta_at(lambda_prime: float) -> float:
        return affine_coefficients(lambda_prime, 0.0, **variances)[0]

    axis = np.linspace(0.0, 0.95 * limit, 200).tolist()
    yield _record("relation", 2, **variances, pole=limit, lambda_prime=axis, theta=[theta_at(at) for at in axis])
    for name, at in (("MMSE", 0.0), ("MMSE_p", 0.5), ("ML", 1.0), ("MMSE_p", 1.0 + 0.4 * (limit - 1.0))):
        place = region(at, **variances).value
        yield _record("estimator", 2, **variances, name=name, lambda_prime=at, theta=theta_at(at), region=place)


def _quadratic_surface(network: QuadraticNetwork) -> Iterator[Record]:
    """Figure 3: the surface, its critical points and the ML point."""
    theta, rho = np.linspace(-1.2, 1.2, 97), np.linspace(-2.0, 2.0, 81)
    yield _surface(3, "quadratic", "corrected", theta, rho, network.error(theta[:, None], rho[None, :]))
    for point in network.critical_points():
        yield _record(
            "point", 3, name=point.name, theta=point.theta, rho=point.rho, error=point.error, point_kind=point.kind
        )
    yield _record("point", 3, name="ML", theta=1.0, rho=0.0, error=network.ml_error, point_kind="estimator")


def _shallow_surfaces(network: ShallowNetwork, *, seed: int, num_samples: int) -> Iterator[Record]:
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


def _against_input_limit(network: ShallowNetwork, *, seed: int, num_samples: int) -> Record:
    """Figure 6: the error of ML and of the paper's denoiser against c."""
    multipliers = {"ml": 1.0, "pb": network.optimal_theta("printed")}
    axis = np.linspace(0.0, 0.5, 21)[1:]
    series: dict[str, Any] = {"input_limit": [0.0, *axis.tolist()]}
    networks = [replace(network, input_limit=c) for c in axis.tolist()]
    for name, theta in multipliers.items():
        for form in ("printed", "leading", "exact"):
            errors = [float(at.error(theta, 0.0, form)) for at in networks]
            series[f"{name}_{form}"] = [0.0, *errors]
    points = axis[1::2].tolist()
    thetas = np.array(list(multipliers.values()))
    estimates = [
        simulate_shallow(replace(network, input_limit=c), thetas, 0.0, seed=seed + k, num_samples=num_samples)
        for k, c in enumerate(points)
    ]
    series["simulated_input_limit"] = points
    for k, name in enumerate(multipliers):
        series[f"{name}_simulated"] = [float(estimate.mean[k]) for estimate in estimates]
        series[f"{name}_standard_error"] = [float(estimate.standard_error[k]) for estimate in estimates]
    parameters = asdict(network)
    del parameters["input_limit"]  # it is the axis
    return _record("against_c", 6, **parameters, num_samples=num_samples, seed=seed, **series)


def _surface(figure: int, network: str, form: str, theta: Array, rho: Array, error: Array) -> Record:
    """A surface as nested lists, a row per theta; six digits are more than a figure shows."""
    rows = [[float(f"{value:.6g}") for value in row] for row in error]
    axes = {"theta": [round(float(at), 9) for at in theta], "rho": [round(float(at), 9) for at in rho]}
    return _record("surface", figure, network=network, form=form, **axes, error=rows)


def _record(kind: str, figure: int, **values: Any) -> Record:
    return {"experiment": "theory", "kind": kind, "figure": figure, **values}
