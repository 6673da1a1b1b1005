"""Figures and pages that name their channel, and channels at equal channel uses."""

from pathlib import Path

from quietnn.records import Record
from quietnn.reports.analysis import analyse_task
from quietnn.reports.page.payload import page_title
from quietnn.reports.page.tasks import task_payload
from quietnn.reports.runs import Run
from quietnn.reports.titles import (
    channel_title,
    counted,
    level_ticks,
    listed,
    over_channels,
    span_db,
    task_title,
    wnr_axis,
)
from quietnn.reports.write import task_figures


def result(method: str, wnr_db: float, accuracy: float, draw: int = 0, **more: object) -> Record:
    return {"task": "digits", "method": method, "wnr_db": wnr_db, "accuracy": accuracy, "draw": draw, **more}


def memory() -> list[Record]:
    """Two draws of a memory after a day and after a year."""
    return [
        result("ml", wnr_db + draw / 10, accuracy, draw, channel="pcm:compensate=false", level=level)
        for level, wnr_db, accuracy in ((86_400.0, 14.0, 0.9), (31_536_000.0, 12.0, 0.8))
        for draw in range(2)
    ]


def link(channel: str, accuracies: tuple[float, ...], **more: object) -> list[Record]:
    return [
        result("ml", wnr_db, accuracy, channel=channel, level=wnr_db, **more)
        for wnr_db, accuracy in zip((4.0, 8.0), accuracies, strict=True)
    ]


def test_a_figure_names_its_channel_and_what_it_was_set_to() -> None:
    (axes,) = task_figures(analyse_task("digits", memory(), 0.6, 10))["accuracy"].axes
    assert axes.get_title() == "digits over phase-change memory (compensate=false)"
    assert axes.get_xlabel() == "effective WNR (dB)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["12.05\n1 y", "14.05\n1 d"]


def test_a_figure_of_a_link_says_so_and_one_of_white_noise_is_as_it_was() -> None:
    (axes,) = task_figures(analyse_task("digits", link("digital", (0.3, 0.8)), 0.6, 10))["accuracy"].axes
    assert (axes.get_title(), axes.get_xlabel()) == ("digits over digital code at capacity", "link WNR (dB)")
    white = [result("ml", 4.0, 0.3), result("ml", 8.0, 0.8)]
    (axes,) = task_figures(analyse_task("digits", white, 0.6, 10))["accuracy"].axes
    assert (axes.get_title(), axes.get_xlabel()) == ("digits", "WNR (dB)")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4", "8"]


def test_the_page_names_it_too() -> None:
    payload = task_payload(analyse_task("digits", memory(), 0.6, 10), most_trials=0)
    assert payload["title"] == "Handwritten digits over phase-change memory (compensate=false)"
    assert payload["axis"] == "effective WNR (dB)"
    assert page_title([Run("m", Path(), {}, tuple(memory()))]) == payload["title"]


def test_several_channels_are_listed_once() -> None:
    records = [*link("digital", (0.3, 0.8)), result("ml", 4.0, 0.3)]
    assert over_channels("digits", records) == "digits over digital code at capacity and white noise"
    assert wnr_axis(records) == "link WNR (dB)"
    assert wnr_axis([*records, *memory()]) == "effective WNR (dB)"
    assert level_ticks([{"channel": "truncate", "level": 1, "wnr_db": 19.4}]) == {19.4: "1 bit"}


def test_long_settings_are_cut_or_left_out() -> None:
    assert channel_title("protected:copies=4,names=" + "|".join("abcdefghijklmnopqrstuvw")) == (
        "white noise with repetition (copies=4, ...)"
    )
    assert channel_title("protected:names=" + "x" * 50) == "white noise with repetition"


def test_names_of_levels_do_not_run_into_each_other() -> None:
    records = [result("ml", wnr_db, 0.5) for wnr_db in (4.0, 6.0, 6.12, 6.444, 12.0)]
    (axes,) = task_figures(analyse_task("digits", records, 0.6, 10))["accuracy"].axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4", "6", "12"]


def test_numbers_and_names_are_said_as_a_reader_says_them() -> None:
    assert (listed(["a"]), listed(["a", "b", "a", "c"])) == ("a", "a, b and c")
    assert (counted(1, "noise draw"), counted(1200, "record")) == ("one noise draw", "1,200 records")
    assert (span_db([0.0, 12.0, 6.0]), span_db([-7.0])) == ("from 0 to 12 dB", "at −7 dB")
    assert (task_title("sst2/cnn"), task_title("cifar10")) == ("cnn on SST-2", "CIFAR-10")


def test_the_axis_follows_the_channel() -> None:
    assert wnr_axis([{"wnr_db": 3.0}]) == "WNR (dB)"
    assert wnr_axis([{"channel": "fading"}]) == "link WNR (dB)"
    assert wnr_axis([{"channel": "pcm"}]) == "effective WNR (dB)"
    assert over_channels("digits", [{"wnr_db": 3.0}]) == "digits"
    assert over_channels("digits", [{"channel": "quantise"}]) == "digits over uniform quantisation"
