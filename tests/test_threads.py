"""Torch's threads are lent and given back."""

from threading import Event, Thread

import pytest
import torch

from quietnn.threads import one_torch_thread


def test_the_setting_is_as_before_whatever_happens() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_torch_thread(), one_torch_thread():
            assert torch.get_num_threads() == 1
        with pytest.raises(ZeroDivisionError), one_torch_thread():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_uses_that_overlap_do_not_leave_one_thread_behind() -> None:
    """The second begins within the first and ends after it; the setting is that of the process, for new threads too."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    first_is_in, second_is_in, first_is_out = Event(), Event(), Event()

    def first() -> None:
        with one_torch_thread():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    def second() -> None:
        first_is_in.wait(10)
        with one_torch_thread():
            second_is_in.set()
            first_is_out.wait(10)

    try:
        threads = [Thread(target=first), Thread(target=second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen: list[int] = []
        fresh = Thread(target=lambda: seen.append(torch.get_num_threads()))
        fresh.start()
        fresh.join()
        assert seen == [3]
    finally:
        torch.set_num_threads(before)
