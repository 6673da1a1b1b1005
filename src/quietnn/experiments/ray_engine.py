"""Units of work as Ray tasks, on this machine or on an existing cluster."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from quietnn.errors import QuietnnError
from quietnn.records import Record


def run_on_ray(
    ray: Any,
    make_worker: Callable[[], Any],
    units: Sequence[Any],
    *,
    num_workers: int,
    num_threads: int,
    address: str | None,
) -> Iterator[Record]:
    """Run units as Ray tasks, `num_workers` at a time; Ray runs a task again if its process is killed.

    Each Ray process makes one worker and keeps it, so model and data are loaded once per process.
    """
    ours = not ray.is_initialized()
    if ours:
        local = {} if address else {"num_cpus": num_workers * num_threads, "include_dashboard": False}
        ray.init(address=address, log_to_driver=False, logging_level="error", **local)
    try:
        remote = ray.remote(num_cpus=num_threads, max_retries=3)(_run_unit)
        recipe = ray.put(pickle.dumps(make_worker))
        waiting = list(reversed(units))
        running: list[Any] = []
        while waiting or running:
            while waiting and len(running) < num_workers:
                running.append(remote.remote(recipe, num_threads, waiting.pop()))
            finished, running = ray.wait(running, num_returns=1)
            try:
                yield from ray.get(finished[0])
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, QuietnnError) else error) from None
    finally:
        if ours:
            ray.shutdown()


def _run_unit(recipe: bytes, num_threads: int, unit: Any) -> list[Record]:
    return list(_worker(recipe, num_threads).run(unit))


@lru_cache(maxsize=1)
def _worker(recipe: bytes, num_threads: int) -> Any:
    import torch

    torch.set_num_threads(num_threads)
    return pickle.loads(recipe)()
