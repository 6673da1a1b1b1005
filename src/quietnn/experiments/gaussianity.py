"""How Gaussian a network's weights are, layer by layer, and what the Gaussian prior costs there."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import quietnn
from quietnn.errors import InvalidWeights
from quietnn.moments import WeightStatistics
from quietnn.records import Record
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import load_task
from quietnn.theory.family import noise_variance_of
from quietnn.theory.prior_cost import prior_cost
from quietnn.units import ratio_to_db
from quietnn.weights import layerwise


@dataclass(frozen=True)
class Gaussianity:
    """Compares each layer's weights with a Gaussian, at the noise of one whole-model WNR.

    Attributes:
        task: whose clean weights to look at.
        wnr_db: sets the noise, one variance for the whole model.
        weights: a weights file, where the task's usual one is not meant.
    """

    task: str
    wnr_db: float
    weights: str | None = None

    def run(self, data_dir: Path | None = None) -> Iterator[Record]:
        """One record for each layer, and one (layer `""`) for the whole model."""
        model = load_task(self.task, data_dir=data_dir, weights=self.weights).load_model()
        weights = noisy_weights(model)
        noise_variance = noise_variance_of(self.wnr_db, WeightStatistics.from_clean(weights.values()).variance)
        if noise_variance == 0:
            raise InvalidWeights(f"at {self.wnr_db} dB there is no noise for a prior to matter; choose a finite WNR")
        for layer, names in {"": tuple(weights), **layerwise(weights)}.items():
            values = torch.cat([weights[name].flatten().double() for name in names])
            cost = prior_cost(values.numpy(), noise_variance)
            yield {
                "experiment": "gaussianity",
                "task": self.task,
                "layer": layer,
                "num_weights": values.numel(),
                "wnr_db": ratio_to_db(float(values.var(correction=0)) / noise_variance),
                "excess_kurtosis": cost.excess_kurtosis,
                "distance": cost.distance,
                "linear_error": cost.linear_error,
                "best_error": cost.best_error,
                "cost_db": cost.cost_db,
                "noise_variance": noise_variance,
                "version": quietnn.__version__,
            }
