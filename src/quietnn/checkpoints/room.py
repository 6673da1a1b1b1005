"""Room for tensors in memory: how many weights may be in work at once, whatever the number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from quietnn.checkpoints.memory import give_back

AT_ONCE = 1 << 22
"""Weights that may be in work at once, if no tensor has more; a channel takes up to some hundred bytes for each."""


class Room:
    """Lets threads in while the tensors they work on have so many weights together, the others wait.

    Args:
        largest: weights of the largest tensor, which is then in work alone if it has more than `AT_ONCE`.
    """

    def __init__(self, largest: int) -> None:
        self._free = max(largest, AT_ONCE)
        self._left = Condition()

    @contextmanager
    def taken(self, num_weights: int) -> Iterator[None]:
        """Room for a tensor as soon as there is some; whoever holds it must wait for nobody else."""
        with self._left:
            self._left.wait_for(lambda: self._free >= num_weights)
            self._free -= num_weights
        try:
            yield
        finally:
            give_back(num_weights)
            with self._left:
                self._free += num_weights
                self._left.notify_all()
