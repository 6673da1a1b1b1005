"""Studies of a network's clean weights, layer by layer: how Gaussian they are, and what a channel does to them."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch

import quietnn
from quietnn.channels.base import Rated
from quietnn.channels.moments import (
    ErrorMoments,
    ErrorShape,
    effective_wnr_db,
    errors_at_unit_gain,
    pooled,
    told_variances,
)
from quietnn.channels.table import channel_named
from quietnn.errors import InvalidWeights
from quietnn.moments import WeightStatistics
from quietnn.records import Record
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import load_task
from quietnn.theory.family import noise_variance_of
from quietnn.theory.prior_cost import prior_cost
from quietnn.units import ratio_to_db
from quietnn.weights import layerwise


def gaussianity(
    task: str, wnr_db: float, *, weights: Path | None = None, data_dir: Path | None = None
) -> Iterator[Record]:
    """Compare each layer's weights with a Gaussian, at the noise of one whole-model WNR; layer `""` is the whole model.

    `weights` is a file, where the task's usual one is not meant.
    """
    tensors = noisy_weights(load_task(task, data_dir=data_dir, weights=weights).load_model())
    noise_variance = noise_variance_of(wnr_db, WeightStatistics.from_clean(tensors.values()).variance)
    if noise_variance == 0:
        raise InvalidWeights(f"at {wnr_db} dB there is no noise for a prior to matter; choose a finite WNR")
    for layer, names in {"": tuple(tensors), **layerwise(tensors)}.items():
        values = torch.cat([tensors[name].flatten().double() for name in names])
        yield {
            "experiment": "gaussianity",
            "task": task,
            "layer": layer,
            "num_weights": values.numel(),
            "wnr_db": ratio_to_db(float(values.var(correction=0)) / noise_variance),
            **prior_cost(values.numpy(), noise_variance),
            "noise_variance": noise_variance,
            "version": quietnn.__version__,
        }


def channel_errors(
    task: str, channel: str, *, seed: int = 0, weights: Path | None = None, data_dir: Path | None = None
) -> Iterator[Record]:
    """Gain, noise and shape of a channel's error: one record for the whole model (layer `""`), then one a noisy tensor.

    `channel` is a name of `quietnn.channels.table`, with its settings; `weights` is a file.
    """
    through = channel_named(channel)
    tensors = noisy_weights(load_task(task, data_dir=data_dir, weights=weights).load_model())
    observation = through.transmit(tensors, seed=seed)
    moments = {name: ErrorMoments.of(tensor, observation.received[name]) for name, tensor in tensors.items()}
    errors, told = errors_at_unit_gain(tensors, observation), told_variances(tensors, observation)
    shape = ErrorShape.of(errors)
    noisy = told > 0
    by_told = errors[noisy] / torch.sqrt(told[noisy])  # of variance 1 if what is told is right

    def head(layer: str, own: ErrorMoments) -> Record:
        named = {"experiment": "media_errors", "task": task, "channel": channel, "seed": seed, "layer": layer}
        return {**named, "version": quietnn.__version__, **{name: getattr(own, name) for name in _MOMENTS}}

    yield {
        **head("", pooled(moments.values())),
        "told_noise_variance": float(told.mean()),
        "measured_noise_variance": float(errors.square().mean()),
        "squared_over_told": float(by_told.square().mean()),
        **({"rate": through.rate(tensors)} if isinstance(through, Rated) else {}),
        "effective_wnr_db": effective_wnr_db(tensors, observation.noise_variance),
        "excess_kurtosis": shape.excess_kurtosis,
        "excess_kurtosis_by_told": ErrorShape.of(by_told).excess_kurtosis if len(by_told) else math.nan,
        "distance": shape.distance,
        "quantiles": list(shape.quantiles),
        "histogram": list(shape.histogram),
    }
    for name, own in moments.items():
        yield head(name, own)


_MOMENTS = (
    "num_weights",
    "gain",
    "noise_variance",
    "mean_error",
    "mean_squared_error",
    "correlation",
    "best_multiplier",
)
