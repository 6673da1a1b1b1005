"""The numbers that show what is wrong in the paper's Section IV and its proofs, told in docs/how-it-works/errata.md.

`python -m quietnn.theory.errata` prints the tables of that page, the same at every run.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quietnn.theory.montecarlo import compare
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.theory.shallow import ShallowNetwork

SEED = 2023
NUM_SAMPLES_QUADRATIC = 1_000_000
NUM_SAMPLES_SHALLOW = 300_000
PAPER_QUADRATIC = QuadraticNetwork(weight_variance=2.25, noise_variance=1.0, dimension=5, offset=0.1)
PAPER_SHALLOW = ShallowNetwork(weight_variance=1.0, noise_variance=0.5, num_hidden=10, input_limit=0.4)


@dataclass(frozen=True)
class Measurement:
    """One quantity: what the paper says, what is right, and what an independent method finds.

    `printed` is None where the paper gives no number; `standard_error` is None unless the method is a simulation.
    """

    quantity: str
    printed: float | None
    corrected: float
    measured: float
    method: str
    standard_error: float | None = None

    def __str__(self) -> str:
        """A row of a table."""
        printed = "none given" if self.printed is None else f"{self.printed:.4g}"
        error = "" if self.standard_error is None else f" +- {self.standard_error:.1g}"
        return f"| {self.quantity} | {printed} | {self.corrected:.4g} | {self.measured:.4g}{error} | {self.method} |"


Table = tuple[Measurement, ...]


def constant_c2() -> Table:
    """Erratum 1: `E (x - c)^2` is `c^2 + 1/3`."""
    far = replace(PAPER_QUADRATIC, offset=1.0)
    optimum = _simulated("error at P3, figure 3 (c = 0.1)", PAPER_QUADRATIC, PAPER_QUADRATIC.optimal_theta)
    ml = _simulated("ML, figure 3", PAPER_QUADRATIC, 1.0)
    gain = Measurement(
        "gain over ML, figure 3",
        replace(PAPER_QUADRATIC, constants="printed").gain,
        PAPER_QUADRATIC.gain,
        1 - optimum.measured / ml.measured,
        "ratio of two simulations",
    )
    return _simulated("error at c = 1, d = 5, sw = 2.25, sz = 1, theta = 1, rho = 0", far, 1.0), optimum, gain


def saddle_point() -> Table:
    """Erratum 2: P4 is a saddle, and the derivatives in rho carry one S too many."""
    network = PAPER_QUADRATIC
    a, b, s = network.a, network.b, network.received_variance
    p4 = network.critical_points()[3]
    sw, sz = network.weight_variance, network.noise_variance
    theta, rho, step = 0.8, 0.6, 1e-4
    slope = (network.error(theta, rho + step) - network.error(theta, rho - step)) / (2 * step)
    return (
        Measurement(
            "determinant of the Hessian at P4, figure 3",
            None,
            64 * sw**3 * sz * b * (b - a) / s,
            float(np.linalg.det(_numerical_hessian(network, p4.theta, p4.rho))),
            "finite differences",
        ),
        Measurement(
            "dD/drho at theta = 0.8, rho = 0.6, figure 3",
            4 * rho * (a * s**2 * theta**2 + b * (rho**2 - sw)),
            float(network.gradient(theta, rho)[1]),
            float(slope),
            "finite differences",
        ),
    )


def stray_terms() -> Table:
    """Erratum 3: terms in rho without a factor of c."""
    setting = "error at N = 10, c = 0.4, sw = 1, sz = 0.5, theta = 0.8, rho = 0.6"
    row = _simulated(setting, PAPER_SHALLOW, 0.8, 0.6)
    without = float(PAPER_SHALLOW.error(0.8, 0.6, "printed_without_stray"))
    return row, replace(row, quantity="the same, printed form without those terms", printed=without)


def swapped_values() -> Table:
    """Erratum 4: two simulated values named the wrong way round."""
    theta = PAPER_SHALLOW.optimal_theta("printed")
    return (
        replace(_simulated("simulated ML error, figure 5", PAPER_SHALLOW, 1.0), printed=0.25),
        replace(_simulated("simulated MMSE_pb error, figure 5", PAPER_SHALLOW, theta), printed=0.54),
    )


def lost_leading_term() -> Table:
    """Erratum 5: the expansion in z loses a term of order c^2."""
    limits = (0.01, 0.2, 0.4, 0.5)
    ml = [_simulated(f"ML error at c = {c}", replace(PAPER_SHALLOW, input_limit=c), 1.0) for c in limits]
    small = replace(PAPER_SHALLOW, input_limit=0.01)
    multipliers = {"sqrt(sw / (sw + 2 sz))": small.optimal_theta("printed"), "sw / S": small.optimal_theta("leading")}
    return *ml, *(_simulated(f"error at c = 0.01, theta = {name}", small, one) for name, one in multipliers.items())


def low_wnr_optimum() -> Table:
    """Erratum 6: with strong noise P3 is not the best point of the quadratic network."""
    network = QuadraticNetwork(weight_variance=1.0, noise_variance=5.0, dimension=5, offset=0.1)
    setting = "sw = 1, sz = 5 (WNR -7 dB), d = 5, c = 0.1"
    _, p2, p3, _ = network.critical_points()
    rows = [
        _simulated(f"error at {name}, {setting}", network, point.theta, point.rho)
        for name, point in (("P3", p3), ("P2", p2), ("the edge", network.best_feasible()))
    ]
    return replace(rows[0], printed=p3.error), *(replace(row, printed=None) for row in rows[1:])


def negative_temperature() -> Table:
    """Erratum 7: the tanh network's best lambda lies below the range the paper allows."""
    multipliers = (
        ("theta = sqrt(sw/(sw + 2 sz)), the printed optimum", PAPER_SHALLOW.optimal_theta("printed")),
        ("theta = sw/S, plain MMSE", PAPER_SHALLOW.optimal_theta("leading")),
        (f"theta = {PAPER_SHALLOW.optimal_theta():.3f}, the exact optimum", PAPER_SHALLOW.optimal_theta()),
    )
    return tuple(_simulated(f"error at {name}", PAPER_SHALLOW, theta) for name, theta in multipliers)


def all_errata() -> tuple[Table, ...]:
    """The table of every erratum in order; a few seconds of simulation."""
    first = (constant_c2(), saddle_point(), stray_terms(), swapped_values())
    return (*first, lost_leading_term(), low_wnr_optimum(), negative_temperature())


def render(table: Table) -> str:
    """A table as it stands on the page."""
    head = ("| quantity | printed | corrected | measured | by |", "|---|---:|---:|---:|---|")
    return "\n".join([*head, *map(str, table)]) + "\n"


def _simulated(
    quantity: str, network: QuadraticNetwork | ShallowNetwork, theta: float, rho: float = 0.0
) -> Measurement:
    """An error as printed, as it should be, and as it comes out in a simulation."""
    num_samples = NUM_SAMPLES_QUADRATIC if isinstance(network, QuadraticNetwork) else NUM_SAMPLES_SHALLOW
    printed, corrected, estimate = compare(network, theta, rho, seed=SEED, num_samples=num_samples)
    return Measurement(quantity, printed, corrected, estimate.mean, "Monte Carlo", estimate.standard_error)


def _numerical_hessian(network: QuadraticNetwork, theta: float, rho: float, step: float = 1e-3) -> NDArray[np.float64]:
    at, along = np.array([theta, rho]), step * np.eye(2)

    def second(first: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        signs = [(p, q) for p in (-1, 1) for q in (-1, 1)]
        return float(sum(p * q * network.error(*(at + p * first + q * other)) for p, q in signs) / (4 * step * step))

    return np.array([[second(a, b) for b in along] for a in along])


if __name__ == "__main__":
    print("\n".join(map(render, all_errata())), end="")
