"""Plain simulation of both networks, with a standard error, to hold every closed form against."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietnn.theory.family import check_variance, require_count
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.theory.shallow import ShallowNetwork

Array = NDArray[np.float64]

_BATCH_ENTRIES = 1 << 18  # numbers drawn per array and batch: a few megabytes, whatever num_samples


@dataclass(frozen=True)
class Estimate:
    """A sample mean and its standard error; floats, or arrays of one shape."""

    mean: Any
    standard_error: Any
    num_samples: int

    def z_score(self, value: float) -> float:
        """How many standard errors `value` lies above the sample mean.

        >>> Estimate(mean=1.0, standard_error=0.5, num_samples=100).z_score(2.0)
        2.0
        """
        if self.standard_error == 0:
            return 0.0 if value == self.mean else math.copysign(math.inf, value - self.mean)
        return float((value - self.mean) / self.standard_error)


def simulate_quadratic(network: QuadraticNetwork, theta: float, rho: float, *, seed: int, num_samples: int) -> Estimate:
    """The error of `theta r + rho` on the quadratic network: draw x, w and z, square the output's error.

    >>> estimate = simulate_quadratic(QuadraticNetwork(2.25, 1.0, 5, 0.1), 1.0, 0.0, seed=0, num_samples=10_000)
    >>> abs(estimate.z_score(QuadraticNetwork(2.25, 1.0, 5, 0.1).ml_error)) < 4
    True
    """

    def squared_error(rng: np.random.Generator, size: int) -> Array:
        shape = (size, network.dimension)
        x = rng.uniform(-1.0, 1.0, shape)
        weights = math.sqrt(network.weight_variance) * rng.standard_normal(shape)
        noise = math.sqrt(network.noise_variance) * rng.standard_normal(shape)
        estimate = theta * (weights + noise) + rho
        difference = ((estimate**2 - weights**2) * (x - network.offset) ** 2).sum(axis=1)
        return np.asarray(difference**2)

    return _average(squared_error, seed=seed, num_samples=num_samples, entries=network.dimension)


def simulate_shallow(
    network: ShallowNetwork, theta: ArrayLike, rho: ArrayLike, *, seed: int, num_samples: int
) -> Estimate:
    """The error of `theta r + rho` on the shallow network; arrays of theta and rho share their draws.

    >>> paper = ShallowNetwork(1.0, 0.5, 10, 0.4)
    >>> estimate = simulate_shallow(paper, 1.0, 0.0, seed=0, num_samples=10_000)
    >>> abs(estimate.z_score(paper.ml_error())) < 4
    True
    """
    thetas, rhos = np.broadcast_arrays(np.asarray(theta, dtype=float), np.asarray(rho, dtype=float))
    points = list(zip(thetas.ravel().tolist(), rhos.ravel().tolist(), strict=True))

    def squared_error(rng: np.random.Generator, size: int) -> Array:
        shape = (2, size, network.num_hidden)  # u, then v
        x = rng.uniform(-network.input_limit, network.input_limit, (size, 1))
        u, v = math.sqrt(network.weight_variance) * rng.standard_normal(shape)
        du, dv = math.sqrt(network.noise_variance) * rng.standard_normal(shape)
        clean = (v * np.tanh(u * x)).sum(axis=1)
        outputs = [((t * (v + dv) + q) * np.tanh((t * (u + du) + q) * x)).sum(axis=1) for t, q in points]
        return np.asarray((np.stack(outputs) - clean) ** 2).reshape(*thetas.shape, size)

    return _average(squared_error, seed=seed, num_samples=num_samples, entries=2 * network.num_hidden)


def compare(
    network: QuadraticNetwork | ShallowNetwork, theta: float, rho: float, *, seed: int, num_samples: int
) -> tuple[float, float, Estimate]:
    """The error of `theta r + rho` as the paper prints it, as it is, and as it comes out in a simulation."""
    if isinstance(network, QuadraticNetwork):
        printed = replace(network, constants="printed").error(theta, rho)
        estimate = simulate_quadratic(network, theta, rho, seed=seed, num_samples=num_samples)
    else:
        printed = network.error(theta, rho, "printed")
        estimate = simulate_shallow(network, theta, rho, seed=seed, num_samples=num_samples)
    return float(printed), float(network.error(theta, rho)), estimate


def simulate_mean_output(
    u: ArrayLike,
    v: ArrayLike,
    x: float,
    *,
    theta: float,
    rho: float,
    noise_variance: float,
    seed: int,
    num_samples: int,
) -> Estimate:
    """The mean of eq. 26 over the noise for given weights and input, the left side of Lemma 1.

    >>> round(simulate_mean_output([0.5], [2.0], 0.4, theta=1.0, rho=0.0, noise_variance=0.0,
    ...                            seed=0, num_samples=10).mean, 6)
    0.394751
    """
    check_variance(noise_variance, "noise_variance")
    clean = np.stack([np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64)])

    def output(rng: np.random.Generator, size: int) -> Array:
        noise = math.sqrt(noise_variance) * rng.standard_normal((size, *clean.shape))
        estimate = theta * (clean + noise) + rho
        return np.asarray((estimate[:, 1] * np.tanh(estimate[:, 0] * x)).sum(axis=1))

    return _average(output, seed=seed, num_samples=num_samples, entries=clean.size)


def _average(
    draw: Callable[[np.random.Generator, int], Array], *, seed: int, num_samples: int, entries: int
) -> Estimate:
    """Mean and standard error over the last axis of what `draw` returns, batch after batch."""
    require_count("num_samples", num_samples, at_least=2)
    require_count("seed", seed, at_least=0)
    rng = np.random.default_rng(seed)
    batch = max(1, _BATCH_ENTRIES // entries)
    mean: Any = 0.0
    squares: Any = 0.0  # the sum of squared deviations from the mean, merged batch by batch without cancellation
    done = 0
    while done < num_samples:
        size = min(batch, num_samples - done)
        values = draw(rng, size)
        batch_mean = values.mean(axis=-1)
        step = batch_mean - mean
        squares = squares + np.square(values - batch_mean[..., None]).sum(axis=-1)
        squares = squares + step**2 * done * size / (done + size)
        mean = mean + step * size / (done + size)
        done += size
    standard_error = np.sqrt(squares / (num_samples - 1) / num_samples)
    if np.ndim(mean):
        return Estimate(mean, standard_error, num_samples)
    return Estimate(float(mean), float(standard_error), num_samples)
