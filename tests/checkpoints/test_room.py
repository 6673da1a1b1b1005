"""Room for tensors: never more in work than there is room for, and none lost."""

import time
from threading import Lock, Thread

import pytest

from quietnn.checkpoints.workers import AT_ONCE, Room


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
