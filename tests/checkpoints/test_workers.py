"""Threads: an error in one stops all, memory is shared out, and torch keeps its setting."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.workers import AT_ONCE, Room, Streaming, run
from quietnn.errors import InvalidConfig, QuietnnError

Leftovers = Callable[[], list[str]]


@pytest.mark.parametrize("largest", [AT_ONCE // 2, 3 * AT_ONCE])
def test_tensors_in_work_fit_together(largest: int) -> None:
    room, lock = Room(largest), Lock()
    limit, inside, seen = max(largest, AT_ONCE), [0], []

    def work() -> None:
        for size in (largest, largest // 3, 1, largest // 2):
            with room.taken(size):
                with lock:
                    inside[0] += size
                    seen.append(inside[0])
                time.sleep(0.002)
                with lock:
                    inside[0] -= size

    threads = [Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 32
    assert max(seen) <= limit


def test_an_error_gives_the_room_back() -> None:
    room = Room(2 * AT_ONCE)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), room.taken(2 * AT_ONCE):
            1 / 0  # noqa: B018
    with room.taken(2 * AT_ONCE):
        pass


def test_an_error_in_one_thread_stops_all_and_leaves_nothing(tmp_path: Path, file: Path, leftovers: Leftovers) -> None:
    def fail(num_bytes: int) -> None:
        raise InterruptedError("stop")

    with pytest.raises(QuietnnError, match="cannot write"):
        denoise_after_statistics(file, tmp_path / "out.safetensors", fail)
    assert not (tmp_path / "out.safetensors").exists()
    assert leftovers() == []

    done: list[int] = []

    def work(job: int, buffer: Tensor) -> None:
        done.append(job)
        if job == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        run(range(1, 1000), work, 2, 1)
    assert len(done) < 999


def denoise_after_statistics(file: Path, out: Path, fail: Callable[[int], None]) -> None:
    """Denoise with a callback that fails in the second pass."""
    seen = 0
    total = sum(tensor.nbytes for name, tensor in load_file(file).items() if name.startswith(("conv", "fc", "scale")))

    def progress(num_bytes: int) -> None:
        nonlocal seen
        seen += num_bytes
        if seen > total:
            fail(num_bytes)

    denoise_checkpoint(file, out, noise_variance=0.01, streaming=Streaming(num_threads=2, on_progress=progress))


def test_torch_keeps_its_number_of_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    save_file({"a.weight": torch.randn(3, 3)}, tmp_path / "in.safetensors")
    denoise_checkpoint(tmp_path / "in.safetensors", tmp_path / "out.safetensors", noise_variance=0.1)
    assert torch.get_num_threads() == before


def test_memory_does_not_grow_with_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(128))
    assert (Streaming().readers, Streaming().writers) == (24, 24)
    assert Streaming(num_threads=50).writers == 50


def test_numbers_below_one() -> None:
    for options in ({"num_threads": 0}, {"chunk": 0}):
        with pytest.raises(InvalidConfig, match="at least 1"):
            Streaming(**options)  # type: ignore[arg-type]


def test_threads_that_cannot_be_had(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python and torch tell of starvation in their own ways; the user is told what to do."""
    from quietnn.checkpoints import workers

    def starved(num_bytes: int) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(workers, "whole_pages", starved)
    with pytest.raises(QuietnnError, match="fewer with --threads"):
        denoise_checkpoint(file, tmp_path / "out.safetensors", noise_variance=0.01)
    with pytest.raises(InvalidConfig, match="more than 256"):
        Streaming(num_threads=100_000)
