"""Every closed form of the theory beside a simulation, and the data of the paper's figures 2, 3, 5 and 6."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quietnn.experiments.theory_curves import figure_records
from quietnn.records import Record
from quietnn.theory.checks import require_count
from quietnn.theory.mean_output import mean_output_exact, mean_output_taylor
from quietnn.theory.montecarlo import Estimate, simulate_mean_output, simulate_quadratic, simulate_shallow
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.theory.shallow import ShallowNetwork

PAPER_QUADRATIC = QuadraticNetwork(weight_variance=2.25, noise_variance=1.0, dimension=5, offset=0.1)
PAPER_SHALLOW = ShallowNetwork(weight_variance=1.0, noise_variance=0.5, num_hidden=10, input_limit=0.4)


@dataclass(frozen=True)
class TheoryChecks:
    """The theory checks: the paper's settings, `num_random` others of each network, Lemma 1, the figures' data.

    Args:
        seed: of the simulations and of the random settings.
        num_samples: draws per simulated number.
        num_random: random settings per network.
    """

    seed: int = 0
    num_samples: int = 200_000
    num_random: int = 5

    def __post_init__(self) -> None:
        require_count("seed", self.seed, at_least=0)
        require_count("num_samples", self.num_samples, at_least=100)
        require_count("num_random", self.num_random, at_least=0)

    def run(self) -> Iterator[Record]:
        """Yield one record per check, then those the figures are drawn from."""
        yield from self.checks()
        first_seed = self.seed * 10_000 + 5_000  # the checks use those below
        yield from figure_records(PAPER_QUADRATIC, PAPER_SHALLOW, seed=first_seed, num_samples=self.num_samples)

    def checks(self) -> Iterator[Record]:
        """Yield one record per check, each with a seed of its own."""
        seeds = iter(range(self.seed * 10_000, (self.seed + 1) * 10_000))
        for setting, network, theta, rho in self._quadratic_settings():
            quadratic = simulate_quadratic(network, theta, rho, seed=next(seeds), num_samples=self.num_samples)
            yield self._quadratic_check(setting, network, theta, rho, quadratic)
        for setting, shallow, theta, rho in self._shallow_settings():
            estimate = simulate_shallow(shallow, theta, rho, seed=next(seeds), num_samples=self.num_samples)
            yield self._shallow_check(setting, shallow, theta, rho, estimate)
        for input_value in (0.1, 0.4, 1.0):
            yield self._mean_output_check(input_value, seed=next(seeds))

    def _quadratic_settings(self) -> Iterator[tuple[str, QuadraticNetwork, float, float]]:
        paper = PAPER_QUADRATIC
        yield "figure 3, ML", paper, 1.0, 0.0
        yield "figure 3, MMSE", paper, paper.weight_variance / paper.received_variance, 0.0
        for point in paper.critical_points()[1:]:
            yield f"figure 3, {point.name}", paper, point.theta, point.rho
        yield "c = 1, ML", QuadraticNetwork(2.25, 1.0, 5, 1.0), 1.0, 0.0
        low = QuadraticNetwork(1.0, 5.0, 5, 0.1)
        for point in (low.critical_points()[2], low.best_feasible()):
            yield f"WNR -7 dB, {point.name}", low, point.theta, point.rho
        rng = np.random.default_rng([self.seed, 1])
        for number in range(1, self.num_random + 1):
            sw, sz, c = rng.uniform(0.2, 3.0), rng.uniform(0.1, 3.0), rng.uniform(-1.0, 1.0)
            network = QuadraticNetwork(sw, sz, int(rng.integers(1, 12)), c)
            yield f"random {number}", network, rng.uniform(0.2, 1.2), rng.uniform(-1.0, 1.0)

    def _shallow_settings(self) -> Iterator[tuple[str, ShallowNetwork, float, float]]:
        paper = PAPER_SHALLOW
        yield "figure 5, ML", paper, 1.0, 0.0
        yield "figure 5, MMSE_pb", paper, paper.optimal_theta("printed"), 0.0
        yield "figure 5, MMSE", paper, paper.optimal_theta("leading"), 0.0
        yield "figure 5, exact optimum", paper, paper.optimal_theta(), 0.0
        yield "figure 5, with an offset", paper, 0.8, 0.6
        yield "c = 0.1, ML", ShallowNetwork(1.0, 0.5, 10, 0.1), 1.0, 0.0
        rng = np.random.default_rng([self.seed, 2])
        for number in range(1, self.num_random + 1):
            sw, sz, c = rng.uniform(0.2, 2.0), rng.uniform(0.1, 2.0), rng.uniform(0.05, 1.0)
            network = ShallowNetwork(sw, sz, int(rng.integers(1, 13)), c)
            yield f"random {number}", network, rng.uniform(0.2, 1.2), rng.uniform(-0.6, 0.6)

    def _quadratic_check(
        self, setting: str, network: QuadraticNetwork, theta: float, rho: float, estimate: Estimate
    ) -> Record:
        parameters = (network.weight_variance, network.noise_variance, network.dimension, network.offset)
        printed = float(QuadraticNetwork(*parameters, constants="printed").error(theta, rho))
        numbers = {"dimension": network.dimension, "offset": network.offset}
        closed_form = float(network.error(theta, rho))
        return self._check("quadratic", setting, network, numbers, theta, rho, closed_form, printed, estimate)

    def _shallow_check(
        self, setting: str, network: ShallowNetwork, theta: float, rho: float, estimate: Estimate
    ) -> Record:
        printed = float(network.error(theta, rho, "printed"))
        numbers = {"num_hidden": network.num_hidden, "input_limit": network.input_limit}
        exact = float(network.error(theta, rho))
        record = self._check("shallow", setting, network, numbers, theta, rho, exact, printed, estimate)
        return {**record, "leading_order": float(network.error(theta, rho, "leading"))}

    def _check(
        self,
        name: str,
        setting: str,
        network: QuadraticNetwork | ShallowNetwork,
        numbers: dict[str, float],
        theta: float,
        rho: float,
        closed_form: float,
        printed: float,
        estimate: Estimate,
    ) -> Record:
        return {
            "experiment": "theory",
            "kind": "check",
            "network": name,
            "setting": setting,
            "weight_variance": network.weight_variance,
            "noise_variance": network.noise_variance,
            **numbers,
            "theta": theta,
            "rho": rho,
            "closed_form": closed_form,
            "printed": printed,
            **self._simulated(estimate, closed_form),
            "z_printed": estimate.z_score(printed),
        }

    def _mean_output_check(self, x: float, *, seed: int) -> Record:
        """Lemma 1 for fixed weights: its Taylor form, the exact mean, and a simulation."""
        u, v = (0.9, -0.4, 1.6), (1.2, 0.7, -0.5)
        theta, rho, noise_variance = 0.8, 0.1, 0.5
        arguments = {"theta": theta, "rho": rho, "noise_variance": noise_variance}
        exact = mean_output_exact(u, v, x, theta=theta, rho=rho, noise_variance=noise_variance)
        estimate = simulate_mean_output(
            u, v, x, theta=theta, rho=rho, noise_variance=noise_variance, seed=seed, num_samples=self.num_samples
        )
        taylor = mean_output_taylor(u, v, x, theta=theta, rho=rho, noise_variance=noise_variance)
        return {
            "experiment": "theory",
            "kind": "check",
            "network": "lemma 1",
            "setting": f"mean output at x = {x:g}",
            "u": list(u),
            "v": list(v),
            "x": x,
            **arguments,
            "closed_form": exact,
            "printed": taylor,
            **self._simulated(estimate, exact),
            "z_printed": estimate.z_score(taylor),
        }

    def _simulated(self, estimate: Estimate, closed_form: float) -> Record:
        return {
            "monte_carlo": estimate.mean,
            "standard_error": estimate.standard_error,
            "z": estimate.z_score(closed_form),
            "num_samples": estimate.num_samples,
            "seed": self.seed,
        }
