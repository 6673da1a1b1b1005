"""The page in a real browser: drawn, readable by pointer and keys, sortable, and safe."""

import csv
import io
import json
import statistics
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.reports.shortcuts import analyse

from quietnn.records import Record

pytestmark = pytest.mark.browser

Make = Callable[..., list[Record]]
Write = Callable[..., Path]
Open = Callable[..., Any]

CANVAS_COLOURS = """canvas => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200) found.add((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);
  }
  return found.size;
}"""


RECORDER = """
window.drawn = { texts: [], dots: 0 };
const { fillText, arc } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  drawn.texts.push(text);
  return fillText.call(this, text, ...place);
};
CanvasRenderingContext2D.prototype.arc = function (x, y, radius, ...angles) {
  if (radius < 3) drawn.dots += 1;
  return arc.call(this, x, y, radius, ...angles);
};
"""


@pytest.fixture
def page(make_records: Make, write_page: Write, open_page: Open) -> Any:
    return open_page(write_page(make_records(num_draws=3)))


def test_curves_bands_gain_surface_and_layers_are_drawn(page: Any) -> None:
    assert page.locator("#task-0-accuracy .series").count() == 6
    assert page.locator("#task-0-accuracy .gain-text").text_content().endswith("dB at 60 %")
    surface = page.locator("#task-0-surface")
    assert surface.locator("svg.chart rect").count() > 50
    assert {mark.text_content() for mark in surface.locator(".mark").all()} >= {"ML", "MMSE", "chosen"}
    assert "under-compensation" in surface.locator("svg.chart").text_content()
    assert "The pole, λ′ = 1 + η" in surface.text_content()
    assert surface.locator("canvas").evaluate(CANVAS_COLOURS) > 50
    assert "block1.conv1" in page.locator("#task-0-layers svg").text_content()
    assert page.locator("h1").text_content() == "Handwritten digits under weight noise"


def test_only_the_chosen_curve_has_a_band_until_all_are_asked_for(page: Any) -> None:
    band = page.locator("#task-0-accuracy .band")
    chosen = page.locator('#task-0-accuracy .series[data-label="MMSE_pb layerwise"] path').first
    assert band.count() == 1
    assert band.get_attribute("fill") == chosen.get_attribute("stroke")
    page.select_option("#task-0-of", label="MMSE")
    other = page.locator('#task-0-accuracy .series[data-label="MMSE"] path').first
    assert band.get_attribute("fill") == other.get_attribute("stroke")
    assert "the band of MMSE is ± one standard" in page.locator("#task-0-accuracy figcaption").text_content()
    page.check("#task-0-bands")
    assert band.count() == 6


def test_the_relief_has_an_axis_of_heights_and_shows_every_measured_point(
    make_records: Make, write_page: Write, open_page: Open
) -> None:
    records = make_records(num_draws=1, wnrs=(-6.0,), methods=("ml", "mmse_pb"))
    page = open_page(write_page(records), before=RECORDER)
    page.locator("#task-0-surface canvas").focus()
    page.evaluate("drawn.texts = []; drawn.dots = 0")
    page.keyboard.press("ArrowRight")
    trials = next(record["trials"] for record in records if record["method"] == "mmse_pb")
    heights = [100 * trial[2] for trial in trials if trial[2] is not None]
    texts = page.evaluate("drawn.texts")
    assert "accuracy (%)" in texts
    ticks = {f"{tick:g}" for tick in range(0, 101, 10) if min(heights) <= tick <= max(heights)}
    assert len(ticks) > 2
    assert len(ticks & {*texts}) > 2
    assert page.evaluate("drawn.dots") == len(heights)


def test_the_best_of_each_kind_of_data_is_said_on_top(page: Any) -> None:
    told = page.locator("#task-0-advice")
    assert told.locator("dt").all_text_contents() == ["No data", "Inputs and labels"]
    lines = told.locator("dd").all_text_contents()
    assert lines[0].startswith("ML: keep the weights as received: MMSE loses 0.")
    assert lines[1].startswith("MMSEpb layerwise: 160 passes, with labels, +3.")
    assert told.bounding_box()["y"] < 900


def test_the_number_on_top_is_there_without_a_gain(make_records: Make, write_page: Write, open_page: Open) -> None:
    records = make_records(num_draws=3, wnrs=(-4.0, -2.0), methods=("ml", "mmse_pb_layerwise"), with_trials=False)
    page = open_page(write_page(records))
    measured = [
        100 * statistics.mean(r["accuracy"] for r in records if r["method"] == method and r["wnr_db"] == -4.0)
        for method in ("ml", "mmse_pb_layerwise")
    ]
    assert page.locator(".figure-card.main strong").text_content() == f"{measured[0]:.1f} → {measured[1]:.1f} %"


def test_a_gain_that_is_larger_than_what_was_measured_is_drawn_as_a_bound(
    make_records: Make, write_page: Write, open_page: Open
) -> None:
    records = make_records(num_draws=3, wnrs=(-7.0, -6.0, -5.0), methods=("ml", "mmse_pb_layerwise"))
    page = open_page(write_page(records))
    assert page.locator("#task-0-accuracy .gain-text").text_content().startswith("> +1.")
    assert "so the gain over ML is more than 1." in page.locator("#task-0-accuracy figcaption").text_content()
    assert "> +1." in page.locator("#task-0-gains svg").text_content()


def test_words_are_explained_by_pointer_by_key_and_by_touch(
    page: Any, make_records: Make, write_page: Write, open_page: Open
) -> None:
    gloss = page.locator(".gloss")
    assert gloss.is_hidden()
    page.locator('.lead .term[data-word="WNR"]').hover()
    gloss.get_by_text("Weight-to-noise ratio").wait_for()
    page.mouse.move(2, 300)
    gloss.wait_for(state="hidden")
    word = page.locator('.figure-card .term[data-word="gain"], .figure-card .term[data-word="ML"]').first
    word.focus()
    gloss.get_by_text("weights exactly as they were received").wait_for()
    assert page.locator(f"#{word.get_attribute('aria-describedby')}").text_content() in gloss.text_content()
    page.keyboard.press("Escape")
    gloss.wait_for(state="hidden")
    page.keyboard.press("Enter")
    gloss.wait_for(state="visible")
    page.keyboard.press("Enter")
    gloss.wait_for(state="hidden")
    phone = open_page(write_page(make_records(num_draws=2)), width=390, has_touch=True)
    phone.locator('#task-0-gains-table .term[data-word="MMSE_pb"]').tap()
    phone.locator(".gloss").get_by_text("are tuned on the labelled examples").wait_for()
    box = phone.locator(".gloss").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    phone.locator("#task-0-gains-title").tap(position={"x": 300, "y": 5})
    phone.locator(".gloss").wait_for(state="hidden")


def test_the_words_of_a_page_stand_in_it_and_again_at_its_end(page: Any) -> None:
    words = {"WNR", "ML", "MMSE", "MMSE_pb", "gain", "interval", "passes"}
    for word in words:
        assert page.locator(f'.term[data-word="{word}"]').count() > 0, word
    names = {name.replace("MMSEp", "MMSE_p") for name in page.locator("#words dt").all_text_contents()}
    assert words <= names


def hover(page: Any, mark: Any) -> Any:
    """The card that a mark shows: drawn figures and scrolling come to rest first, for a scroll hides the card."""
    mark.scroll_into_view_if_needed()
    page.evaluate("() => new Promise((rest) => requestAnimationFrame(() => requestAnimationFrame(rest)))")
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator(".tip")
    tip.wait_for(state="visible")
    return tip


def test_hovering_shows_the_values_of_the_records(page: Any, make_records: Make) -> None:
    records = make_records(num_draws=3)
    tip = hover(page, page.locator('#task-0-accuracy .series[data-label="MMSE_pb"] path[transform]').nth(3))
    assert tip.locator("strong").text_content() == "WNR −6 dB, 3 draws"
    row = next(row for row in tip.locator("tr").all() if row.locator("td").first.text_content() == "MMSEpb")
    measured = [100 * r["accuracy"] for r in records if r["method"] == "mmse_pb" and r["wnr_db"] == -6.0]
    expected = f"{statistics.mean(measured):.2f} ± {statistics.stdev(measured):.2f} %"
    assert row.locator("td").last.text_content() == expected


def test_a_point_of_the_surface_shows_its_trial(page: Any, make_records: Make) -> None:
    page.select_option("#task-0-surface-wnr", label="−6 dB")
    card = hover(page, page.locator("#task-0-surface svg.chart circle[r='2.6']").nth(20))
    tip = card.inner_text().replace("−", "-").replace("\n", " ").replace("\t", " ")
    trials = next(
        r["trials"]
        for r in make_records(num_draws=3)
        if r["method"] == "mmse_pb" and r["wnr_db"] == -6.0 and r["draw"] == 0
    )
    shown = [f"λ′ {t[0]:g}, β {t[1]:g} accuracy {100 * t[2]:.2f} %" for t in trials if t[2] is not None]
    assert any(tip.startswith(text) for text in shown), tip


def test_keys_read_the_curves_aloud_and_turn_the_relief(page: Any) -> None:
    page.locator("#task-0-accuracy svg.chart").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".unseen[aria-live]").text_content().startswith("WNR −10 dB, 3 draws: ")
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()
    relief = page.locator("#task-0-surface canvas")
    before = relief.evaluate("canvas => canvas.toDataURL()")
    relief.focus()
    page.keyboard.press("ArrowRight")
    assert relief.evaluate("canvas => canvas.toDataURL()") != before


def test_a_curve_can_be_hidden_and_the_level_moved(page: Any) -> None:
    chip = page.locator("#task-0-accuracy .chip").first
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert page.locator("#task-0-accuracy .series").count() == 5
    page.locator("#task-0-level").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#task-0-accuracy .gain-text").text_content().endswith("dB at 61 %")
    page.check("#task-0-draws")
    assert page.locator("#task-0-accuracy .series circle").count() == 5 * 7 * 3


def test_the_table_filters_and_sorts(page: Any, make_records: Make) -> None:
    records = make_records(num_draws=3)
    count = page.locator("#results-0 [role=status]")
    assert count.text_content() == f"{len(records)} of {len(records)} records"
    page.select_option("#results-0-method", "mmse_pb")
    page.fill("#results-0-search", "accuracy>0.5 wnr_db<=-4")
    wanted = [r for r in records if r["method"] == "mmse_pb" and r["accuracy"] > 0.5 and r["wnr_db"] <= -4]
    assert count.text_content() == f"{len(wanted)} of {len(records)} records"
    page.click("#results-0-by-accuracy")
    page.click("#results-0-by-accuracy")
    header = page.locator("#results-0 thead th").all_text_contents()
    column = next(at for at, text in enumerate(header) if text.startswith("accuracy"))
    cells = page.locator(f"#results-0 tbody td:nth-child({column + 1})").all_text_contents()
    best = sorted((r["accuracy"] for r in wanted), reverse=True)
    assert [float(cell) for cell in cells] == pytest.approx(best, rel=1e-5)
    assert page.locator("#results-0 th[aria-sort=descending]").count() == 1
    page.fill("#results-0-search", "nosuchword")
    assert count.text_content() == "No record fits; loosen the filter."


def saved(page: Any, selector: str, label: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.locator(selector).get_by_text(label, exact=True).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_figures_are_saved_as_valid_svg_and_png(page: Any) -> None:
    name, content = saved(page, "#task-0-accuracy .saves", "SVG")
    assert name == "task-0-accuracy.svg"
    root = ElementTree.fromstring(content)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"var(" not in content
    assert b"light-dark" not in content
    assert b"MMSE" in content
    for figure, label in (("accuracy", "PNG"), ("surface", "PNG"), ("surface", "PNG of the relief"), ("layers", "PNG")):
        name, content = saved(page, f"#task-0-{figure} .saves", label)
        assert name.endswith(".png")
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert content.rstrip().endswith(b"IEND\xaeB`\x82")
        assert len(content) > 5000


def test_numbers_are_saved_as_csv_and_latex(page: Any, make_records: Make) -> None:
    records = make_records(num_draws=3)
    _, content = saved(page, "#task-0-accuracy .saves", "CSV")
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    row = next(row for row in rows if row["method"] == "ML" and float(row["wnr_db"]) == -6.0)
    measured = [r["accuracy"] for r in records if r["method"] == "ml" and r["wnr_db"] == -6.0]
    assert float(row["mean"]) == pytest.approx(statistics.mean(measured), rel=1e-8)
    _, content = saved(page, "#results-0 .saves", "CSV")
    everything = list(csv.DictReader(io.StringIO(content.decode())))
    assert [float(row["accuracy"]) for row in everything] == pytest.approx([r["accuracy"] for r in records], rel=1e-8)
    name, content = saved(page, "#results-0 .saves", "LaTeX")
    assert name == "results.tex"
    assert content.startswith(b"\\begin{tabular}")
    assert content.count(b"\\\\\n") == len(records) + 1
    assert b"mmse\\_pb" in content


def test_what_ran_is_told(page: Any) -> None:
    told = page.locator("#ran").inner_text()
    for text in ("quietnn report runs/digits", "2024-02-29", "0.1.0", "abc123def456", "computing time"):
        assert text in told


def test_figures_saved_in_the_dark_are_on_white(make_records: Make, write_page: Write, open_page: Open) -> None:
    page = open_page(write_page(make_records(num_draws=2)), color_scheme="dark")
    for figure, label in (("accuracy", "PNG"), ("surface", "PNG of the relief")):
        _, content = saved(page, f"#task-0-{figure} .saves", label)
        image = Image.open(io.BytesIO(content)).convert("RGBA")
        assert image.getpixel((3, 3)) == (255, 255, 255, 255)
        assert image.convert("L").getextrema()[0] < 80


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    make_records: Make, write_page: Write, open_page: Open, scheme: str
) -> None:
    page = open_page(write_page(make_records(num_draws=2)), width=390, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("#task-0-accuracy .series").count() == 6
    assert page.locator("#mark").count() == 0
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(16, 18, 22)") == (scheme == "dark")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 18, 22)"


def test_a_phone_shows_every_gain_with_its_interval_without_scrolling_the_table(
    make_records: Make, write_page: Write, open_page: Open
) -> None:
    page = open_page(write_page(make_records(num_draws=6, with_trials=False)), width=390)
    region = page.locator(".scroll:has(> #task-0-gains-table)")
    assert region.evaluate("node => node.scrollWidth <= node.clientWidth")
    rows = page.locator("#task-0-gains-table tbody tr")
    assert rows.count() == 6
    for row in rows.all():
        for cell in row.locator("td:not([data-empty])").all():
            box = cell.bounding_box()
            assert 0 < box["x"] < box["x"] + box["width"] <= 390
    assert "gain (dB)" in page.locator("#task-0-gains-table td").nth(1).evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    )


def test_a_phone_cuts_no_name_off_the_figure_of_gains(make_records: Make, write_page: Write, open_page: Open) -> None:
    records = make_records(num_draws=2, with_trials=False, methods=("ml", "branches_balanced", "mmse_pb"))
    page = open_page(write_page(records), width=390)
    stage = page.locator("#task-0-gains .stage")
    stage.get_by_text("MMSE of branches, balanced classes").wait_for()
    left = stage.bounding_box()["x"]
    assert all(name.bounding_box()["x"] >= left for name in stage.locator("text").all())


def test_every_figure_has_a_name_and_a_table_beside_it(page: Any) -> None:
    for figure in page.locator("[role=img]").all():
        assert len(figure.get_attribute("aria-label")) > 20
    for name in ("accuracy", "gains"):
        assert page.locator(f"#task-0-{name}-table tbody tr").count() == 6
    assert page.locator("#task-0-surface details table tbody tr").count() > 50
    assert page.locator("#task-0-layers details table tbody tr").count() == 5


def test_text_from_records_stays_text(make_records: Make, write_page: Write, open_page: Open) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    records = make_records(run=evil, task=evil, methods=("ml", evil), num_draws=2)
    page = open_page(write_page(records, name=evil, note=evil))
    assert evil in page.locator("h1").text_content()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    _, content = saved(page, "#task-0-accuracy .saves", "SVG")
    assert not [node for node in ElementTree.fromstring(content).iter() if node.tag.endswith(("script", "img"))]


def test_what_is_missing_is_said_in_words(make_records: Make, write_page: Write, open_page: Open) -> None:
    records = make_records(num_draws=1, wnrs=(-12.0, -10.0), methods=("ml", "mmse_pb"), with_trials=False)
    config: dict[str, Any] = {"wnr_db": [-12.0, -10.0], "methods": ["ml", "mmse_pb", "posterior"], "num_draws": 1}
    page = open_page(write_page(records, **config))
    told = page.locator("main").inner_text()
    assert "2 of 7 planned results are not there yet: Posterior (2)." in told
    assert "rests on one noise draw, so there is no band and no interval" in told
    assert "One noise draw, so there are no bands." in told
    assert "stays below 60 % up to −10 dB, so there is no gain to mark" in told.replace("\n", " ")
    assert page.locator("#task-0-surface").count() == 0


def test_no_records_at_all_is_a_page_too(write_page: Write, open_page: Open) -> None:
    page = open_page(write_page([]))
    assert "There are no records yet." in page.locator("#results").inner_text()


def test_without_scripts_the_tables_are_there(make_records: Make, write_page: Write, open_page: Open) -> None:
    page = open_page(write_page(make_records(num_draws=2)), java_script_enabled=False)
    assert "MMSE_pb layerwise holds 60 %" in page.locator("main").inner_text()
    assert page.locator("table").count() == 3


def test_the_gain_that_the_browser_reads_is_the_one_that_python_measured(
    page: Any, make_records: Make, write_run: Write, tmp_path: Path
) -> None:
    (task,) = analyse(write_run(tmp_path / "run", make_records(num_draws=3))).tasks
    for curve, gain in zip(task.curves, task.gains, strict=True):
        if gain is not None and gain.gain_db is not None:
            page.select_option("#task-0-of", label=curve.label)
            way = "less" if gain.gain_db >= 0 else "more"
            told = page.locator("#task-0-accuracy figcaption").text_content()
            assert f"needs {abs(gain.gain_db):.2f} dB {way} WNR than ML" in told


def test_perplexity_stands_where_accuracy_does(language_records: Make, write_page: Write, open_page: Open) -> None:
    page = open_page(write_page(language_records(), name="words"))
    assert page.locator("#task-0-accuracy-title").text_content() == "Perplexity against noise"
    assert page.locator("#task-0-accuracy .gain-text").text_content() == "+2.0 dB at perplexity 12"
    ticks = page.locator("#task-0-accuracy svg.chart text").all_text_contents()
    assert {"10", "100", "perplexity"} <= set(ticks)
    assert "8 perplexity without noise on 20,000 test tokens" in page.locator(".cards").text_content()
    page.locator('.term[data-word="perplexity"]').first.focus()
    assert "Lower is better." in page.locator(".gloss").text_content()
    assert "NaN" not in page.locator("main").inner_html()
    assert "%" not in page.locator("#task-0-perplexity-table, #task-0-accuracy-table").first.text_content()
    page.locator("#task-0-level").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#task-0-accuracy .gain-text").text_content() == "+2.0 dB at perplexity 12.2"  # on its grid


@pytest.mark.parametrize("sign", [1, -1])
def test_one_wnr_of_a_score(sign: int, make_records: Make, write_page: Write, open_page: Open) -> None:
    found = make_records(methods=("ml", "mmse"), num_draws=2, wnrs=(-4.0,), with_trials=False)
    judged = [one | {"accuracy": None, "score": sign * one["accuracy"], "loss": -one["accuracy"]} for one in found]
    page = open_page(write_page(judged))
    assert f"{sign * 0.98:g} score without noise" in page.locator(".cards").text_content().replace("−", "-")
    assert "NaN" not in page.locator("main").inner_html()


def test_the_theory_figures_are_drawn(write_page: Write, open_page: Open) -> None:
    axis = [0.1 * at for at in range(-12, 13)]
    theory: list[Record] = [
        {"kind": "relation", "figure": 2, "pole": 3.0, "lambda_prime": [0.0, 1.0, 2.0], "theta": [0.67, 1.0, 2.0],
         "weight_variance": 1.0, "noise_variance": 0.5},
        {"kind": "estimator", "figure": 2, "name": "ML", "lambda_prime": 1.0, "theta": 1.0, "region": "exact"},
        {"kind": "surface", "figure": 3, "network": "quadratic", "form": "corrected", "theta": axis, "rho": axis,
         "error": [[1 + 9 * (x - 0.5) ** 2 + 4 * y**2 for y in axis] for x in axis]},
        {"kind": "point", "figure": 3, "name": "P3", "theta": 0.5, "rho": 0.0, "error": 1.0, "point_kind": "minimum"},
        {"kind": "check", "network": "quadratic", "setting": "figure 3, ML", "closed_form": 2.0, "monte_carlo": 2.1,
         "standard_error": 0.1, "z": 1.0, "printed": 1.5, "z_printed": -6.0},
    ]  # fmt: skip
    page = open_page(write_page([{"experiment": "theory"} | record for record in theory]))
    assert page.locator("#theory-relation .series").count() == 2
    assert "pole, λ′ = 1 + η = 3" in page.locator("#theory-relation svg.chart").text_content()
    assert page.locator("#theory-errors canvas").evaluate(CANVAS_COLOURS) > 50
    assert "P3" in page.locator("#theory-errors svg.chart").text_content()
    assert "−6.0" in page.locator("#theory-checks").text_content()
    page.locator("#theory-errors svg.chart").focus()
    page.keyboard.press("ArrowRight")
    assert "θ −1.2, ρ −1.2" in page.locator(".tip").inner_text()


def test_noisy_training_shows_rounds_and_where_they_end(write_page: Write, open_page: Open) -> None:
    common = {"experiment": "noisy_training", "task": "cifar10/resnet20", "run": "fl", "num_rounds": 10}
    rounds = {"tested_rounds": list(range(1, 11)), "round_accuracy": [0.2 + 0.05 * at for at in range(10)]}
    records = [
        common | rounds | {"method": method, "wnr_db": wnr_db, "seed": draw, "draw": draw, "accuracy": 0.65}
        for method in ("ml", "mmse_pb")
        for wnr_db in (-10.0, 0.0)
        for draw in (0, 1)
    ]
    page = open_page(write_page(records))
    assert page.locator("#training-0-rounds .series").count() == 2
    assert page.locator("#training-0-rounds .band").count() == 1
    page.select_option("#training-0-band", label="all curves")
    page.locator("#training-0-rounds .band").nth(1).wait_for(state="attached")
    assert page.locator("#training-0-rounds .band").count() == 2
    assert page.locator("#training-0-accuracy .series").count() == 2
    page.locator("#training-0-rounds svg.chart").focus()
    page.keyboard.press("ArrowLeft")
    assert "round 10, 2 seeds" in page.locator(".tip").inner_text()
    assert "65.00 ± 0.00 %" in page.locator(".tip").inner_text()


def test_a_hundred_thousand_records_are_drawn_and_stay_quick(write_page: Write, open_page: Open) -> None:
    methods = [f"method{at}" for at in range(9)]
    records: list[Record] = [
        {
            "method": method,
            "wnr_db": float(wnr),
            "draw": draw,
            "seed": draw,
            "accuracy": (7 * draw + wnr) % 1000 / 1000,
            "loss": 1 / (3 + draw),
            "task": "digits",
            "run": "big",
            "seconds": 0.1,
        }
        for method in ("ml", *methods)
        for wnr in range(10)
        for draw in range(1000)
    ]
    path = write_page(records)
    assert path.stat().st_size < 6_000_000
    page = open_page(path)
    marks = page.evaluate("performance.getEntriesByName('drawn')[0].startTime")
    page.fill("#results-0-search", "method3")
    page.click("#results-0-by-accuracy")
    assert page.locator("#results-0 [role=status]").text_content() == "10,000 of 100,000 records"
    print(json.dumps({"bytes": path.stat().st_size, "drawn_ms": marks}))
    assert marks < 60_000
