"""What the page recommends: the best of each kind of data with its cost, never an oracle, with its doubts said."""

import math
from collections.abc import Callable, Mapping

import pytest

from quietnn.records import Record
from quietnn.reports.analysis import analyse_task, training_analyses
from quietnn.reports.page.advice import advice, headline

Make = Callable[..., list[Record]]

PASSES = {"calibrated": 1, "posterior": 148, "finetuned": 270, "self_trained": 100}
ML = [[0.1, 0.3, 0.7], [0.12, 0.32, 0.71], [0.11, 0.31, 0.7]]
BETTER = [[0.3, 0.7, 0.9], [0.32, 0.72, 0.9], [0.31, 0.7, 0.9]]


def records(accuracies: Mapping[str, list[list[float]]], **common: object) -> list[Record]:
    """From 0 dB up in steps of 2, draw by draw, for each method."""
    return [
        {"method": method, "wnr_db": 2.0 * at, "draw": draw, "accuracy": accuracy, "run": "r"}
        | {"num_passes": PASSES.get(method, 0)}
        | common
        for method, draws in accuracies.items()
        for draw, row in enumerate(draws)
        for at, accuracy in enumerate(row)
    ]


def lines(accuracies: Mapping[str, list[list[float]]]) -> dict[str, tuple[str, str]]:
    found = advice(analyse_task("digits", records(accuracies), 0.6, 200))
    return {line["have"]: (line["use"], line["text"]) for line in found}


def top(found: list[Record], task: str = "digits", level: float | None = 0.6) -> tuple[str, str]:
    found_ = headline(analyse_task(task, found, level, 200))
    assert found_ is not None
    return found_["value"], found_["text"]


def moved(draws: list[list[float]], by: float) -> list[list[float]]:
    return [[min(max(accuracy + by, 0.01), 0.99) for accuracy in row] for row in draws]


def test_each_kind_of_data_has_its_best_method_and_what_it_costs() -> None:
    found = lines({"ml": ML, "mmse": moved(ML, -0.2), "calibrated": BETTER, "posterior": moved(BETTER, 0.08)})
    assert list(found) == ["No data", "Inputs only", "Inputs and labels"]
    assert found["No data"] == ("ML", "keep the weights as received: MMSE stays below 60 % up to 4 dB.")
    use, text = found["Inputs only"]
    assert use == "Calibrated"
    assert text.startswith("one pass, no labels, +2.0 dB (interval of at most 75 %, ")
    assert "zero" not in text
    assert found["Inputs and labels"][0] == "Posterior"
    assert found["Inputs and labels"][1].startswith("148 passes, with labels, +2.4 dB (")


def test_an_oracle_is_never_recommended() -> None:
    found = lines({"ml": ML, "mmse_pb_oracle": moved(BETTER, 0.09), "mmse_pb": BETTER})
    assert [use for use, _ in found.values()] == ["MMSE_pb"]
    assert not any("oracle" in text for _, text in found.values())


def test_what_needs_less_and_is_better_stays_recommended() -> None:
    found = lines({"ml": ML, "calibrated": moved(BETTER, 0.08), "mmse_pb": BETTER})
    assert found["Inputs and labels"] == ("Calibrated", "as above; no method that needs more was better here.")


def test_a_tie_is_said_with_the_cost_of_the_other() -> None:
    rival = [[0.25, 0.65, 0.9], [0.34, 0.74, 0.9], [0.3, 0.69, 0.9]]
    use, text = lines({"ml": ML, "posterior": BETTER, "finetuned": rival})["Inputs and labels"]
    assert use == "Posterior"
    assert text.endswith("3 noise draws are too few to tell it apart from Fine-tuned (270 passes, with labels).")
    many = {"ml": ML * 2, "posterior": BETTER * 2, "finetuned": rival * 2}
    assert "The draws do not tell it apart from Fine-tuned" in lines(many)["Inputs and labels"][1]


def test_an_interval_that_includes_zero_is_said() -> None:
    draws = [[0.3, 0.7, 0.9], [0.0, 0.1, 0.62], [0.3, 0.6, 0.8]]
    found = records({"ml": ML, "calibrated": draws})
    (line,) = advice(analyse_task("digits", found, 0.6, 200))
    assert line["text"].endswith("The interval includes zero: this may be luck.")
    assert top(found)[1].endswith("The interval includes zero: this may be luck.")


def test_one_draw_has_no_interval_and_says_so() -> None:
    (line,) = advice(analyse_task("digits", records({"ml": ML[:1], "calibrated": BETTER[:1]}), 0.6, 50))
    assert line["text"] == "one pass, no labels, +2.0 dB. One noise draw, so there is no interval."


def test_passes_that_no_record_tells_are_those_of_the_table() -> None:
    found = records({"ml": ML[:1], "calibrated": BETTER[:1]}, num_passes=math.inf)
    (line,) = advice(analyse_task("digits", found, 0.6, 50))
    assert line["text"].startswith("one pass, no labels, +2.0 dB")


def test_of_an_unknown_method_it_is_not_said_what_it_needs() -> None:
    (line,) = advice(analyse_task("digits", records({"ml": ML, "mine": BETTER}), 0.6, 50))
    assert (line["use"], line["text"][:14]) == ("mine", "no pass, +2.0 ")


def test_the_number_on_top_is_the_gain_with_its_interval() -> None:
    value, text = top(records({"ml": ML, "calibrated": BETTER}))
    assert value == "+2.0 dB"
    assert text.startswith("Calibrated over ML at 60 % accuracy; interval of at most 75 %, ")
    assert text.endswith("; 31.0 → 70.7 % at 2 dB.")


def test_without_a_gain_to_read_the_accuracies_stand_on_top() -> None:
    value, text = top(records({"ml": ML, "posterior": moved(BETTER, 0.4)}))
    assert value == "11.0 → 71.0 %"
    assert text == "accuracy at 0 dB with ML and with Posterior; the gain at 60 % accuracy is more than 3.5 dB."
    value, text = top(records({"ml": moved(ML, -0.1), "calibrated": moved(ML, -0.05)}), level=0.9)
    assert value == "60.3 → 65.3 %"
    assert text == "accuracy at 4 dB with ML and with Calibrated."


def test_a_run_in_which_nothing_helps_says_so() -> None:
    value, text = top(records({"ml": BETTER, "mmse": ML}))
    assert value == "No gain"
    assert text == "No method here beats ML at 60 % accuracy: MMSE loses 2.0 dB."


@pytest.mark.parametrize(("method", "lacks"), [("ml", "No repair was"), ("calibrated", "No ML curve was")])
def test_a_single_curve_still_has_a_number(method: str, lacks: str) -> None:
    value, text = top(records({method: ML}))
    assert value == "11.0 %"
    assert f"accuracy at 0 dB with {'ML' if method == 'ml' else 'Calibrated'}. {lacks} measured" in text


def test_a_perplexity_falls_and_it_is_said_that_lower_is_better(language_records: Make) -> None:
    found = [one for one in language_records(num_draws=3) if one["wnr_db"] in (10.0, math.inf)]
    value, text = top(found, "lm/mine", None)
    before, after = (float(number) for number in value.split(" → "))
    assert after < before
    assert text == "perplexity (lower is better) at 10 dB with ML and with MMSE."


def test_a_language_model_is_repaired_by_nothing_or_by_plain_text(language_records: Make) -> None:
    found = language_records(num_draws=3)
    both = [{**one, "method": "posterior", "num_passes": 19} for one in found if one["method"] == "mmse"]
    better = [{**one, "loss": one["loss"] - 0.3, "score": math.exp(one["loss"] - 0.3)} for one in both]
    lines_ = advice(analyse_task("lm/mine", [*found, *better], None, 200))
    assert [(line["have"], line["use"]) for line in lines_] == [("No data", "MMSE"), ("Plain text", "Posterior")]
    assert lines_[1]["text"].startswith("19 passes, +3.0 dB")


def test_nothing_measured_under_noise_has_no_number() -> None:
    clean: Record = {"method": "clean", "wnr_db": math.inf, "draw": 0, "accuracy": 0.9, "run": "r"}
    assert headline(analyse_task("digits", [clean], 0.6, 50)) is None


def test_a_federation_has_one_best_scheme_without_passes() -> None:
    common = {"experiment": "noisy_training", "task": "digits", "num_passes": None}
    found = records({"ml": ML, "planned": BETTER, "mmse_pb_fixed_oracle": moved(BETTER, 0.1)}, **common)
    (task,) = training_analyses(found, level=0.6, num_resamples=50)
    (line,) = advice(task, by_need=False)
    assert (line["have"], line["use"]) == ("Best scheme", "Planned")
    assert line["text"].startswith("+2.0 dB")
