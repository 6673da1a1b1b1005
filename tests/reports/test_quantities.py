"""What is drawn: accuracy, perplexity or a score, from the records to tables, figures and the page."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.reports.shortcuts import analyse

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.analysis import analyse_task, sentences, task_tables, to_json
from quietnn.reports.page.payload import page_payload
from quietnn.reports.page.tasks import task_payload
from quietnn.reports.quantities import ACCURACY, FALLING_SCORE, PERPLEXITY, SCORE, few_digits, percent, quantity_of
from quietnn.reports.runs import load_run
from quietnn.reports.tables import to_csv
from quietnn.reports.write import publication_figures, write_analysis

Make = Callable[..., list[Record]]
Write = Callable[..., Path]


def scores(*pairs: tuple[float, float | None]) -> list[Record]:
    """Records of ML, one draw each, from scores and losses."""
    return [
        {"method": "ml", "wnr_db": 0.0, "draw": draw, "accuracy": None, "score": score, "loss": loss}
        for draw, (score, loss) in enumerate(pairs)
    ]


def test_what_records_measure() -> None:
    assert quantity_of([]) is SCORE
    assert quantity_of([{"method": "ml", "accuracy": 0.5, "loss": 1.0}]) is ACCURACY
    assert quantity_of(scores((math.exp(2.0), 2.0), (math.inf, math.inf), (math.inf, 1e6))) is PERPLEXITY
    assert quantity_of(scores((2.0, 2.0), (3.0, 3.0))) is FALLING_SCORE
    assert quantity_of(scores((0.8, -0.8), (0.5, -0.5))) is SCORE
    assert quantity_of(scores((0.8, 0.2), (0.5, 2.0), (math.nan, math.inf), (0.1, None))) is SCORE


@pytest.mark.parametrize("level", [0.0, 1.0, 60.0, math.nan])
def test_a_level_of_accuracy(level: float) -> None:
    with pytest.raises(InvalidConfig, match=r"60 % is 0\.6"):
        ACCURACY.level("digits", level, None, [])


@pytest.mark.parametrize("factor", [1.0, 0.6, math.inf, math.nan])
def test_a_level_of_perplexity_is_a_factor(factor: float) -> None:
    with pytest.raises(InvalidConfig, match=r"is not a factor above 1 .* --level 1\.5"):
        PERPLEXITY.level("lm/mine", factor, -2.0, [])


def test_levels_are_taken_from_what_is_known() -> None:
    assert PERPLEXITY.number(PERPLEXITY.level("lm/mine", None, -math.log(8.0), [])) == pytest.approx(12.0)
    assert PERPLEXITY.number(PERPLEXITY.level("lm/mine", 2.0, None, [-math.log(10.0), -9.0])) == pytest.approx(20.0)
    assert SCORE.level("mine", None, 0.9, [0.1, 0.95]) == pytest.approx(0.5)
    assert FALLING_SCORE.number(FALLING_SCORE.level("mine", 3.0, None, [])) == 3.0


def test_few_digits_and_no_exponent_that_a_reader_can_do_without() -> None:
    assert [few_digits(value) for value in (7.8517, 29.0, 460.6, 999_999.0)] == ["7.85", "29.0", "461", "1000000"]
    assert percent(0.625) == "62.5 %"


def test_the_gain_at_one_and_a_half_times_the_clean_perplexity(
    language_records: Make, write_run: Write, tmp_path: Path
) -> None:
    (task,) = analyse(write_run(tmp_path / "run", language_records())).tasks
    assert task.quantity is PERPLEXITY
    gain = task.gains[1]
    assert gain is not None
    assert gain.gain_db == pytest.approx(2.0)
    said = sentences(task)
    assert said[0] == "Without noise: perplexity 8.00 on 20,000 test tokens; gains are read at 1.5 times that."
    assert "MMSE holds perplexity 12.0 with 2.00 dB less WNR than ML" in said[1]


def test_the_perplexity_shown_is_exp_of_the_mean_loss(language_records: Make) -> None:
    found = language_records(num_draws=2, spread=math.log(2.0))
    task = analyse_task("lm/mine", found, None, 10)
    losses = [record["loss"] for record in found if record["method"] == "ml" and record["wnr_db"] == 15.0]
    middle, std = float(np.mean(losses)), float(np.std(losses, ddof=1))
    shown = [few_digits(math.exp(middle + part * std)) for part in (0, -1, 1)]
    assert task_tables(task)["perplexity"].rows[0][2] == "{} ({} to {})".format(*shown)


def test_a_broken_network_counts_and_hides_nothing(language_records: Make) -> None:
    found = language_records(num_draws=1)
    broken = next(record for record in found if record["method"] == "ml")
    broken |= {"score": math.inf, "loss": math.inf}
    task = analyse_task("lm/mine", found, None, 10)
    assert task.quantity is PERPLEXITY
    assert task_tables(task)["perplexity"].rows[0][1] == "1.00e+12"


def test_files_figures_and_page(language_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", language_records())
    names = {path.name for path in write_analysis(analyse(folder), tmp_path / "out")}
    assert {"perplexity.csv", "perplexity.png", "gains.csv", "summary.md", "report.html"} <= names
    assert not [name for name in names if name.startswith("accuracy")]
    for name in ("summary.md", "perplexity.csv", "gains.csv", "tables.tex"):
        assert "nan" not in (tmp_path / "out" / name).read_text()
    run = load_run(folder)
    (axes,) = publication_figures([run])["perplexity"].axes
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "perplexity")
    (task,) = page_payload(analyse(folder))["tasks"]
    assert task["quantity"] == {"name": "perplexity", "axis": "perplexity", "better": "below"}
    assert task["headline"]["text"].startswith("MMSE over ML at perplexity 12.0;")


def test_numbers_for_another_program(language_records: Make, write_run: Write, tmp_path: Path) -> None:
    found = to_json(analyse(write_run(tmp_path / "run", language_records(spread=0.0)), level=2.0))
    (task,) = json.loads(json.dumps(found))["tasks"]
    assert (task["clean_perplexity"], task["level"]) == (pytest.approx(8.0), pytest.approx(16.0))
    assert task["curves"][0]["mean"][-1] == pytest.approx(9.0)
    assert task["curves"][1]["gain"]["level"] == pytest.approx(16.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_score_of_the_users_own_is_a_plain_number(sign: int, make_records: Make) -> None:
    found = [
        record | {"accuracy": None, "score": 3 * sign * record["accuracy"], "loss": -3 * record["accuracy"]}
        for record in make_records(methods=("ml", "mmse_pb"), num_draws=2, with_trials=True)
    ]
    task = analyse_task("mine", found, 1.8 * sign, 10)
    assert task.quantity is (SCORE if sign > 0 else FALLING_SCORE)
    alike = analyse_task("mine", make_records(methods=("ml", "mmse_pb"), num_draws=2), 0.6, 10)
    gains = [one.gains[1] for one in (task, alike)]
    assert gains[0] is not None
    assert gains[1] is not None
    assert gains[0].gain_db == pytest.approx(gains[1].gain_db)
    assert f"Without noise: score {3 * sign * 0.98:.4g} on 1,000 test examples." in sentences(task)
    assert "nan" not in to_csv(task_tables(task)["score"])
    assert task_payload(task, most_trials=100_000)["surfaces"] == []
