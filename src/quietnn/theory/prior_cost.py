"""What the Gaussian prior costs: linear MMSE against the best estimator for the weights' own distribution."""

from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

from quietnn.errors import QuietnnError
from quietnn.theory.family import check_variance
from quietnn.units import ratio_to_db

NUM_BINS = 2001


def prior_cost(weights: NDArray[np.floating], noise_variance: float) -> dict[str, float]:
    """Compare the Gaussian prior with the weights' own distribution, as a histogram, under white Gaussian noise.

    `excess_kurtosis` and `distance` (Kolmogorov-Smirnov) tell how far the weights are from Gaussian; `linear_error` is
    `sigma_w^2 sigma_z^2 / (sigma_w^2 + sigma_z^2)`, the mean squared error of MMSE (eq. 8), and `cost_db` what it gives
    away against `best_error`, that of the best estimator of one weight. This is the posterior mean `E[w | r]`, found by
    convolving the histogram with the noise; its error is `E[w^2] - E[E[w | r]^2]`.

    >>> cost = prior_cost(np.repeat([-1.0, 1.0], 500), noise_variance=0.1)      # two values only: easy to tell apart
    >>> cost["best_error"] < 0.01 < cost["linear_error"] < 0.1
    True
    """
    check_variance(noise_variance, "noise_variance")
    values = np.asarray(weights, dtype=np.float64).ravel()
    if values.size < 2 or not values.std() > 0 or noise_variance == 0:
        raise QuietnnError(
            f"{values.size} weights of variance {values.var() if values.size else 0.0:g} under noise of variance "
            f"{noise_variance:g} have no shape to judge; give two different weights or more, and some noise"
        )
    mean, variance = float(values.mean()), float(values.var())
    standard = (values - mean) / variance**0.5
    linear = variance * noise_variance / (variance + noise_variance)
    best = min(_best_error(values - mean, noise_variance), linear)
    return {
        "excess_kurtosis": float((standard**4).mean() - 3.0),
        "distance": _distance_to_gaussian(standard),
        "linear_error": linear,
        "best_error": best,
        "cost_db": ratio_to_db(linear / best),
    }


def _best_error(values: NDArray[np.float64], noise_variance: float) -> float:
    """The error of the posterior mean, on a grid of histogram bins and of received values."""
    counts, edges = np.histogram(values, bins=NUM_BINS)
    sums, _ = np.histogram(values, bins=edges, weights=values)
    filled = counts > 0
    probability = counts[filled] / values.size
    centre = sums[filled] / counts[filled]
    noise_std = noise_variance**0.5
    margin = 6.0 * noise_std
    step = min(noise_std / 8.0, (edges[-1] - edges[0]) / 400.0)
    received = np.arange(edges[0] - margin, edges[-1] + margin, step)
    density = np.zeros_like(received)
    first_moment = np.zeros_like(received)
    for start in range(0, received.size, 1024):
        part = slice(start, start + 1024)
        kernel = np.exp(-0.5 * ((received[part, None] - centre) / noise_std) ** 2) * probability
        density[part], first_moment[part] = kernel.sum(axis=1), kernel @ centre
    seen = density > 0
    total = density.sum()
    power_of_estimate = float((first_moment[seen] ** 2 / density[seen]).sum() / total)
    return max(float(probability @ centre**2) - power_of_estimate, np.finfo(float).tiny)


def _distance_to_gaussian(standard: NDArray[np.float64]) -> float:
    """The largest gap between the empirical and the normal distribution function."""
    ordered = np.sort(standard)
    grid = np.linspace(-6.0, 6.0, 2401)
    normal = np.array([0.5 * (1.0 + erf(x / sqrt(2.0))) for x in grid])
    below = np.searchsorted(ordered, grid, side="right") / ordered.size
    return float(np.abs(below - normal).max())
