"""What is wrong in the paper's Section IV and its proofs, each claim with the numbers that show it.

`python -m quietnn.theory.errata > docs/errata.md` writes the page, the same text at every run.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quietnn.theory.montecarlo import simulate_quadratic, simulate_shallow
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.theory.shallow import ShallowNetwork
from quietnn.units import ratio_to_db

SEED = 2023
NUM_SAMPLES_QUADRATIC = 1_000_000
NUM_SAMPLES_SHALLOW = 300_000
PAPER_QUADRATIC = QuadraticNetwork(weight_variance=2.25, noise_variance=1.0, dimension=5, offset=0.1)
PAPER_SHALLOW = ShallowNetwork(weight_variance=1.0, noise_variance=0.5, num_hidden=10, input_limit=0.4)

_HEAD = """# Errata of the paper's theory

Found while checking Section IV of "Denoising Noisy Neural Networks: A Bayesian Approach with Compensation"
and its appendices. quietnn uses the corrected forms; the printed ones stay available by name
(`constants="printed"`, `form="printed"`). Variances are written `sw`, `sz`, `S = sw + sz`; `A`, `B` are the paper's
`C1'`, `C2'`. This page is generated: `python -m quietnn.theory.errata > docs/errata.md`. Simulations
use {quadratic:,} draws for the quadratic network, {shallow:,} for the tanh network, and seed {seed}; `+-` is one
standard error. For the tanh network "corrected" is the exact value by quadrature.
"""

_MISPRINTS = """## Smaller misprints

- Section IV-B, the definition of `g_i''`: `tanh^3(a u_i x + b x)` means `tanh^3(theta u_i x + rho x)`.
- Proof of Lemma 1: "all the even terms vanish" means the odd ones; the first line of eq. 28 lacks its expectation.
- Appendix B, eq. 42: `A_3` lacks a factor `v_i`.
- Section III, after eq. 14: setting `mu_w = 0` drops the mean that eq. 10 still has.
"""


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


@dataclass(frozen=True)
class Erratum:
    """One mistake, where it stands, what should stand there, and the evidence."""

    title: str
    where: str
    printed_claim: str
    corrected_claim: str
    measurements: tuple[Measurement, ...]


def constant_c2() -> Erratum:
    """Erratum 1: `E (x - c)^2` is `c^2 + 1/3`."""
    optimum = _simulated("error at P3, figure 3 (c = 0.1)", PAPER_QUADRATIC, PAPER_QUADRATIC.optimal_theta)
    ml = simulate_quadratic(PAPER_QUADRATIC, 1.0, 0.0, seed=SEED, num_samples=NUM_SAMPLES_QUADRATIC)
    gain = Measurement(
        "gain over ML, figure 3",
        replace(PAPER_QUADRATIC, constants="printed").gain,
        PAPER_QUADRATIC.gain,
        1 - optimum.measured / ml.mean,
        "ratio of two simulations",
    )
    far = replace(PAPER_QUADRATIC, offset=1.0)
    return Erratum(
        "The constant C2 of Theorem 1",
        "Appendix A, below eq. 33; C1' and C2' in Theorem 1",
        "`C2 = (c^2 - 1/3)^2`, hence `C1' = (c^2 - 1/3)^2 d^2 + 2 (c^4 + 10 c^2/3 + 11/45) d` and "
        "`C2' = (c^2 - 1/3)^2 d^2 + (4/3) (2 c^2 + 1/15) d`",
        "`C2 = (E (x - c)^2)^2 = (c^2 + 1/3)^2`, hence `A = (c^2 + 1/3)^2 d^2 + 2 (c^4 + 8 c^2/3 + 11/45) d` and "
        "`B = (c^2 + 1/3)^2 d^2 + (4/3) (c^2 + 1/15) d`",
        (_simulated("error at c = 1, d = 5, sw = 2.25, sz = 1, theta = 1, rho = 0", far, 1.0), optimum, gain),
    )


def saddle_point() -> Erratum:
    """Erratum 2: P4 is a saddle, and the derivatives in rho carry one S too many."""
    network = PAPER_QUADRATIC
    a, b, s = network.a, network.b, network.received_variance
    p4 = network.critical_points()[3]
    sw, sz = network.weight_variance, network.noise_variance
    theta, rho, step = 0.8, 0.6, 1e-4
    slope = (network.error(theta, rho + step) - network.error(theta, rho - step)) / (2 * step)
    return Erratum(
        "P4 is a saddle point",
        "Proof of Theorem 1; Appendix A, the Hessian and the derivatives above it",
        "P4 is a local minimum; `dD/drho` and `d^2D/drho^2` hold `C1' (sw + sz)^2 theta^2`; the last step needs "
        "`u1 u2 > 0`; the mixed term at P4 has `2 C1 C2'` under its root",
        "The determinant at P4 is `64 sw^3 sz B (B - A) / S < 0`, a saddle; both derivatives hold `A S theta^2`; "
        "the root holds `B^2 + 2 d C1 B = A B`. P3 stays the lower of the two",
        (
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
        ),
    )


def stray_terms() -> Erratum:
    """Erratum 3: terms in rho without a factor of c."""
    setting = "error at N = 10, c = 0.4, sw = 1, sz = 0.5, theta = 0.8, rho = 0.6"
    row = _simulated(setting, PAPER_SHALLOW, 0.8, 0.6)
    without = float(PAPER_SHALLOW.error(0.8, 0.6, "printed_without_stray"))
    return Erratum(
        "Terms without a factor of c in Theorem 2's surface",
        "Eq. 31; Appendix B, E A12 and the derivatives",
        "`N (N-1) (theta^2 rho^2 sw + rho^4/3)^2` stands beside the terms in `c^2`",
        "It is the square of the cubic term of tanh and carries `E x^6 = c^6/7`: it belongs to the neglected rest",
        (row, replace(row, quantity="the same, printed form without those terms", printed=without)),
    )


def swapped_values() -> Erratum:
    """Erratum 4: two simulated values named the wrong way round."""
    theta = PAPER_SHALLOW.optimal_theta("printed")
    return Erratum(
        "Two simulated values swapped",
        "Section IV-B, the text on figure 5",
        "The simulated errors of ML and of MMSE_pb are 0.25 and 0.54",
        "0.54 is ML, 0.25 is MMSE_pb",
        (
            replace(_simulated("simulated ML error, figure 5", PAPER_SHALLOW, 1.0), printed=0.25),
            replace(_simulated("simulated MMSE_pb error, figure 5", PAPER_SHALLOW, theta), printed=0.54),
        ),
    )


def lost_leading_term() -> Erratum:
    """Erratum 5: the expansion in z loses a term of order c^2."""
    rows = [
        _simulated(f"ML error at c = {c}", replace(PAPER_SHALLOW, input_limit=c), 1.0) for c in (0.01, 0.2, 0.4, 0.5)
    ]
    small = replace(PAPER_SHALLOW, input_limit=0.01)
    multipliers = {"sqrt(sw / (sw + 2 sz))": small.optimal_theta("printed"), "sw / S": small.optimal_theta("leading")}
    rows += [_simulated(f"error at c = 0.01, theta = {name}", small, theta) for name, theta in multipliers.items()]
    return Erratum(
        "Theorem 2 is not the leading order in c",
        "Lemma 1 and eq. 31, eq. 32; Appendix B, eqs. 39 to 41",
        "`D_ML = 2 N c^2 sw sz / 3`, `theta* = sqrt(sw / (sw + 2 sz))`, gain `2 sz / (sw + 2 sz)`",
        "Second order in z loses `E[dv^2 du^2]`, that is `N c^2 theta^4 sz^2 / 3`. At order c^2 "
        "`D = N c^2/3 [(theta^2 S + rho^2)^2 - 2 theta^2 sw^2 + sw^2] + N (N-1) c^2 rho^4/3`, so "
        "`D_ML = N c^2 (S^2 - sw^2)/3`, `theta* = sw/S` (plain MMSE), gain `1 - sw^2/S^2`. The true ML error is "
        f"{1 + 0.5 / 2:.2f} times the printed one as c -> 0 and {_ratio(0.2):.2f} times at c = 0.2; "
        f"they cross at c = {_crossing():.3f}, next to the paper's one setting",
        tuple(rows),
    )


def low_wnr_optimum() -> Erratum:
    """Erratum 6: with strong noise P3 is not the best point of the quadratic network."""
    network = QuadraticNetwork(weight_variance=1.0, noise_variance=5.0, dimension=5, offset=0.1)
    _, p2, p3, _ = network.critical_points()
    edge = network.best_feasible()
    root = math.sqrt(network.a / network.b)
    limits = (root, root**2 + root)
    return Erratum(
        "P3 is not the optimum when the noise is strong",
        "Theorem 1, its proof, and Appendix A below eq. 36",
        "P3 is the global minimum, and the only one to consider with P4 once `lambda >= 0` is imposed",
        "P2 is lower than P3 when `sz/sw > sqrt(A/B)`; it has no `lambda >= 0`, but the edge `lambda = 0`, "
        "`rho^2 = sw - A sw^2/(B S)`, `beta = rho S/(sw sz)` has, and beats P3 when `sz/sw > A/B + sqrt(A/B)`. "
        f"At d = 5, c = 0.1 these limits are {limits[0]:.2f} and {limits[1]:.2f}, a WNR of "
        f"{-ratio_to_db(limits[0]):.1f} dB and {-ratio_to_db(limits[1]):.1f} dB. There the bias compensator does help",
        tuple(
            replace(
                _simulated(
                    f"error at {name}, sw = 1, sz = 5 (WNR -7 dB), d = 5, c = 0.1", network, point.theta, point.rho
                ),
                printed=p3.error if point is p3 else None,
            )
            for name, point in (("P3", p3), ("P2", p2), ("the edge", edge))
        ),
    )


def negative_temperature() -> Erratum:
    """Erratum 7: the tanh network's best lambda lies below the range the paper allows."""
    multipliers = (
        ("theta = sqrt(sw/(sw + 2 sz)), the printed optimum", PAPER_SHALLOW.optimal_theta("printed")),
        ("theta = sw/S, plain MMSE", PAPER_SHALLOW.optimal_theta("leading")),
        (f"theta = {PAPER_SHALLOW.optimal_theta():.3f}, the exact optimum", PAPER_SHALLOW.optimal_theta()),
    )
    return Erratum(
        "The tanh network wants no population compensation at all",
        "Theorem 2, lambda*; Section IV-B",
        "`lambda* > 0`: the optimum lies strictly between MMSE and ML",
        "At the paper's setting the exact optimum is "
        f"`theta* = {PAPER_SHALLOW.optimal_theta():.3f} < sw/S = {PAPER_SHALLOW.optimal_theta('leading'):.3f}`, "
        f"`lambda'* = {PAPER_SHALLOW.optimal_lambda_prime():.3f}`: saturation shrinks it below MMSE, so among "
        "`lambda >= 0` plain MMSE is best. `rho* = 0` holds. The quadratic network does want compensation",
        tuple(_simulated(f"error at {name}", PAPER_SHALLOW, theta) for name, theta in multipliers),
    )


def all_errata() -> tuple[Erratum, ...]:
    """Every erratum in order; a few seconds of simulation."""
    first = (constant_c2(), saddle_point(), stray_terms(), swapped_values())
    return (*first, lost_leading_term(), low_wnr_optimum(), negative_temperature())


def render(errata: tuple[Erratum, ...]) -> str:
    """The whole page."""
    head = _HEAD.format(quadratic=NUM_SAMPLES_QUADRATIC, shallow=NUM_SAMPLES_SHALLOW, seed=SEED)
    return "\n".join([head, *(_section(number, erratum) for number, erratum in enumerate(errata, 1)), _MISPRINTS])


def _section(number: int, erratum: Erratum) -> str:
    lines = [
        f"## {number}. {erratum.title}",
        "",
        f"*Where:* {erratum.where}.",
        "",
        f"*Printed:* {erratum.printed_claim}.",
        "",
        f"*Right:* {erratum.corrected_claim}.",
        "",
        "| quantity | printed | corrected | measured | by |",
        "|---|---:|---:|---:|---|",
        *(_row(measurement) for measurement in erratum.measurements),
        "",
    ]
    return "\n".join(lines)


def _row(measurement: Measurement) -> str:
    printed = "none given" if measurement.printed is None else f"{measurement.printed:.4g}"
    measured = f"{measurement.measured:.4g}"
    if measurement.standard_error is not None:
        measured += f" +- {measurement.standard_error:.1g}"
    return f"| {measurement.quantity} | {printed} | {measurement.corrected:.4g} | {measured} | {measurement.method} |"


def _simulated(
    quantity: str, network: QuadraticNetwork | ShallowNetwork, theta: float, rho: float = 0.0
) -> Measurement:
    """An error as printed, as it should be, and as it comes out in a simulation."""
    if isinstance(network, QuadraticNetwork):
        printed = replace(network, constants="printed").error(theta, rho)
        estimate = simulate_quadratic(network, theta, rho, seed=SEED, num_samples=NUM_SAMPLES_QUADRATIC)
    else:
        printed = network.error(theta, rho, "printed")
        estimate = simulate_shallow(network, theta, rho, seed=SEED, num_samples=NUM_SAMPLES_SHALLOW)
    corrected = float(network.error(theta, rho))
    return Measurement(quantity, float(printed), corrected, estimate.mean, "Monte Carlo", estimate.standard_error)


def _ratio(input_limit: float) -> float:
    """The exact ML error over the printed one."""
    network = replace(PAPER_SHALLOW, input_limit=input_limit)
    return network.ml_error() / network.ml_error("printed")


def _crossing() -> float:
    """The c at which the printed ML error is right by accident."""
    low, high = 0.2, 0.6
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _ratio(middle) > 1 else (low, middle)
    return low


def _numerical_hessian(network: QuadraticNetwork, theta: float, rho: float, step: float = 1e-3) -> NDArray[np.float64]:
    at, along = np.array([theta, rho]), step * np.eye(2)

    def second(first: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        signs = [(p, q) for p in (-1, 1) for q in (-1, 1)]
        return float(sum(p * q * network.error(*(at + p * first + q * other)) for p, q in signs) / (4 * step * step))

    return np.array([[second(a, b) for b in along] for a in along])


if __name__ == "__main__":
    print(render(all_errata()), end="")
