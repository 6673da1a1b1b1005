"""What a channel does to a network's weights: gain, noise, and how Gaussian the error is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

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
from quietnn.records import Record
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import load_task


@dataclass(frozen=True)
class ChannelErrors:
    """The error of one channel on the weights of one network, for one seed.

    Attributes:
        task: whose clean weights to send.
        channel: a name of `quietnn.channels.table`, with its settings.
        seed: of the channel.
        weights: a weights file, where the task's usual one is not meant.
    """

    task: str
    channel: str
    seed: int = 0
    weights: str | None = None

    def run(self, data_dir: Path | None = None) -> Iterator[Record]:
        """One record for the whole model (layer `""`), then one for each noisy tensor with its moments."""
        channel = channel_named(self.channel)
        weights = noisy_weights(load_task(self.task, data_dir=data_dir, weights=self.weights).load_model())
        observation = channel.transmit(weights, seed=self.seed)
        moments = {name: ErrorMoments.of(tensor, observation.received[name]) for name, tensor in weights.items()}
        errors, told = errors_at_unit_gain(weights, observation), told_variances(weights, observation)
        shape = ErrorShape.of(errors)
        yield {
            **self._head(""),
            **_moments(pooled(moments.values())),
            "told_noise_variance": float(told.mean()),
            "measured_noise_variance": float(errors.square().mean()),
            "squared_over_told": _ratio(errors, told),
            **({"rate": channel.rate(weights)} if isinstance(channel, Rated) else {}),
            "effective_wnr_db": effective_wnr_db(weights, observation.noise_variance),
            "excess_kurtosis": shape.excess_kurtosis,
            "excess_kurtosis_by_told": _kurtosis_by_told(errors, told),
            "distance": shape.distance,
            "quantiles": list(shape.quantiles),
            "histogram": list(shape.histogram),
        }
        for name, own in moments.items():
            yield {**self._head(name), **_moments(own)}

    def _head(self, layer: str) -> Record:
        return {
            "experiment": "media_errors",
            "task": self.task,
            "channel": self.channel,
            "seed": self.seed,
            "layer": layer,
            "version": quietnn.__version__,
        }


def _moments(moments: ErrorMoments) -> Record:
    return {
        "num_weights": moments.num_weights,
        "gain": moments.gain,
        "noise_variance": moments.noise_variance,
        "mean_error": moments.mean_error,
        "mean_squared_error": moments.mean_squared_error,
        "correlation": moments.correlation,
        "best_multiplier": moments.best_multiplier,
    }


def _ratio(errors: Tensor, told: Tensor) -> float:
    """The mean of squared errors over the variances told; 1 if those are right."""
    noisy = told > 0
    return float((errors[noisy].square() / told[noisy]).mean()) if bool(noisy.any()) else math.nan


def _kurtosis_by_told(errors: Tensor, told: Tensor) -> float:
    """The excess kurtosis that is left when every error is divided by its own told standard deviation."""
    noisy = told > 0
    standard = errors[noisy] / torch.sqrt(told[noisy])
    return ErrorShape.of(standard).excess_kurtosis if bool(noisy.any()) else math.nan
