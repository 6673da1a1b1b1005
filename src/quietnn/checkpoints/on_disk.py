"""The tensors of a checkpoint as a mapping that holds none of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from torch import Tensor

from quietnn.checkpoints.base import Checkpoint
from quietnn.checkpoints.memory import give_back
from quietnn.checkpoints.workers import ignore_progress


class OnDisk(Mapping[str, Tensor]):
    """Named tensors, each read from its file whenever it is asked for, and forgotten with whoever asked.

    Args:
        checkpoint: what to read from.
        names: of which tensors. They go by the names that key their noise.
        on_progress: told the number of bytes of each tensor that was read.
    """

    def __init__(
        self, checkpoint: Checkpoint, names: Iterable[str], *, on_progress: Callable[[int], None] = ignore_progress
    ) -> None:
        self._checkpoint, self._on_progress = checkpoint, on_progress
        self._names = {checkpoint.noise_name(name): name for name in names}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor = self._checkpoint.read(self._names[name])
        give_back(tensor.numel())  # what the one before it left
        self._on_progress(tensor.nbytes)
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._names  # the one of Mapping would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
