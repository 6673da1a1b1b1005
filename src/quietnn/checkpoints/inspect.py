"""Look into a checkpoint: groups, counts, moments, and the WNR that a noise variance would mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from quietnn.checkpoints.base import Checkpoint, moments_of
from quietnn.checkpoints.opening import open_checkpoint
from quietnn.checkpoints.selection import Selection, select
from quietnn.checkpoints.workers import Streaming
from quietnn.moments import WeightStatistics
from quietnn.theory.family import check_variance
from quietnn.units import ratio_to_db
from quietnn.weights import partition


@dataclass(frozen=True)
class GroupInspection:
    """One group as received: its tensors, its statistics, and its estimated WNR if the noise is known."""

    name: str
    tensors: tuple[str, ...]
    statistics: WeightStatistics
    wnr_db: float | None


@dataclass(frozen=True)
class Inspection:
    """A checkpoint seen from outside: the whole model first, then its groups."""

    checkpoint: Checkpoint
    selection: Selection
    whole: GroupInspection
    groups: tuple[GroupInspection, ...]

    @property
    def history(self) -> list[Any]:
        """What its metadata tell of earlier steps."""
        return self.checkpoint.history


@dataclass(frozen=True)
class Histogram:
    """Counts of weights between evenly spaced edges; what lies outside is in the first and last bin."""

    low: float
    high: float
    counts: tuple[int, ...]


def inspect_checkpoint(
    source: Path,
    *,
    noise_variance: float | None = None,
    groups: str = "layerwise",
    noisy: Sequence[str] = (),
    exclude: Sequence[str] = (),
    streaming: Streaming | None = None,
) -> Inspection:
    """Take the statistics of every group in one pass over the file.

    With a noise variance, the WNR of a group is estimated as `max(var(r) - sigma_z^2, 0) / sigma_z^2`.

    >>> import tempfile, torch
    >>> from safetensors.torch import save_file
    >>> file = Path(tempfile.mkdtemp()) / "noisy.safetensors"
    >>> save_file({"layer.weight": torch.tensor([[3.0, -3.0]])}, file)
    >>> inspect_checkpoint(file, noise_variance=4.5).whole.wnr_db
    0.0
    """
    if noise_variance is not None:
        check_variance(noise_variance, "noise_variance")
    checkpoint = open_checkpoint(source)
    selection = select(checkpoint.shapes, checkpoint.floating, noisy=noisy, exclude=exclude)
    names = checkpoint.distinct(selection.noisy)
    chosen = partition(names, groups)
    moments = moments_of(checkpoint, names, streaming or Streaming())

    def look(group: str, members: tuple[str, ...]) -> GroupInspection:
        statistics = WeightStatistics.from_moments([moments[name] for name in members])
        return GroupInspection(group, members, statistics, _wnr_db(statistics, noise_variance))

    found = tuple(look(group, members) for group, members in chosen.items())
    return Inspection(checkpoint, selection, look("whole", names), found)


def histogram(
    inspection: Inspection, *, num_bins: int = 200, num_std: float = 6.0, streaming: Streaming | None = None
) -> Histogram:
    """Count the weights of the whole model within so many standard deviations of their mean, in one more pass."""
    statistics = inspection.whole.statistics
    reach = num_std * math.sqrt(statistics.variance) or max(abs(statistics.mean), 1.0)
    low, high = statistics.mean - reach, statistics.mean + reach
    total, lock = torch.zeros(num_bins, dtype=torch.int64), Lock()

    def count(name: str, values: Tensor, start: int) -> None:
        found = torch.histc(values.double().clamp_(low, high), bins=num_bins, min=low, max=high).long()
        with lock:
            total.add_(found)

    inspection.checkpoint.visit(inspection.whole.tensors, count, streaming or Streaming())
    return Histogram(low, high, tuple(total.tolist()))


def _wnr_db(statistics: WeightStatistics, noise_variance: float | None) -> float | None:
    if noise_variance is None:
        return None
    weight_variance = statistics.without_noise(noise_variance).variance
    return ratio_to_db(weight_variance / noise_variance) if noise_variance else math.inf
