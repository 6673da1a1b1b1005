"""Look into a checkpoint: moments, groups, counts, and the WNR that a noise variance would mean."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from quietnn.checkpoints.opening import Checkpoint, open_checkpoint
from quietnn.checkpoints.selection import Selection, select
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import InvalidWeights
from quietnn.moments import BLOCK, Moments, WeightStatistics, block_moments, empty_moments
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


def inspect_checkpoint(
    source: Path,
    *,
    noise_variance: float | None = None,
    groups: str = "layerwise",
    noisy: Sequence[str] = (),
    exclude: Sequence[str] = (),
    streaming: Streaming | None = None,
) -> Inspection:
    """Return the statistics of every group, from one pass over the file.

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
        statistics, wnr_db = WeightStatistics.from_moments([moments[name] for name in members]), None
        if noise_variance is not None:
            clean = statistics.without_noise(noise_variance).variance
            wnr_db = ratio_to_db(clean / noise_variance) if noise_variance else math.inf
        return GroupInspection(group, members, statistics, wnr_db)

    found = tuple(look(group, members) for group, members in chosen.items())
    return Inspection(checkpoint, selection, look("whole", names), found)


def moments_of(
    checkpoint: Checkpoint,
    names: Collection[str],
    streaming: Streaming,
    *,
    first: Callable[[str, Tensor], Tensor] | None = None,
) -> dict[str, Moments]:
    """The block moments of each named tensor, or of what `first` makes of it, in one pass; all must be finite."""
    shapes = checkpoint.shapes
    table = {name: empty_moments(math.prod(shapes[name])) for name in names}  # beforehand, in one stretch of memory
    bad: dict[str, int] = dict.fromkeys(names, 0)

    def look(name: str, values: Tensor, start: int) -> None:
        values = first(name, values) if first else values
        block = start // BLOCK
        counts, means, squares = (column[block : block - (-values.numel() // BLOCK)] for column in table[name])
        block_moments(values, into=(counts, means, squares))
        if not math.isfinite(means.sum()):
            bad[name] += int((~torch.isfinite(values)).sum())

    checkpoint.visit(names, look, streaming)
    broken = [name for name in names if bad[name]]
    if broken:
        more = f" (and so do {len(broken) - 1} more tensors)" if len(broken) > 1 else ""
        raise InvalidWeights(
            f"{broken[0]} holds {bad[broken[0]]} values that are not finite{more}; repair that tensor, "
            f"or leave it out with --exclude '{broken[0]}'"
        )
    return table


def histogram(
    inspection: Inspection, *, num_bins: int = 200, num_std: float = 6.0, streaming: Streaming | None = None
) -> tuple[tuple[int, ...], float, float]:
    """Count the weights of the whole model within so many standard deviations of their mean, in one more pass.

    After the counts come the lowest and the highest edge; what lies outside is in the first and last bin.
    """
    statistics = inspection.whole.statistics
    reach = num_std * math.sqrt(statistics.variance) or max(abs(statistics.mean), 1.0)
    low, high = statistics.mean - reach, statistics.mean + reach
    total, lock = torch.zeros(num_bins, dtype=torch.int64), Lock()

    def count(name: str, values: Tensor, start: int) -> None:
        found = torch.histc(values.double().clamp_(low, high), bins=num_bins, min=low, max=high).long()
        with lock:
            total.add_(found)

    inspection.checkpoint.visit(inspection.whole.tensors, count, streaming or Streaming())
    return tuple(total.tolist()), low, high
