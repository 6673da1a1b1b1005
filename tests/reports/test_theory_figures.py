"""The theory figures from records alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from quietnn import records
from quietnn.errors import QuietnnError
from quietnn.experiments.theory_checks import theory_records
from quietnn.reports.theory_figures import quadratic_figure, theory_figures
from quietnn.reports.write import write_figures


@pytest.fixture(scope="module")
def run() -> list[records.Record]:
    return list(theory_records(num_samples=200))


@pytest.mark.slow
def test_figures_are_drawn_from_the_file_alone_and_are_the_same_each_time(
    run: list[records.Record], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, run)
    script = (
        "import sys; from pathlib import Path; from quietnn import records;"
        "from quietnn.reports.theory_figures import theory_figures; from quietnn.reports.write import write_figures;"
        f"figures = theory_figures(records.read(Path({str(path)!r})));"
        f"write_figures(figures, Path({str(tmp_path / 'other')!r}), formats=('png', 'svg'));"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    written = write_figures(theory_figures(records.read(path)), tmp_path / "one", formats=("png", "svg"))
    assert [file.name for file in written] == [
        f"figure-{number}.{suffix}" for number in (2, 3, 5, 6) for suffix in ("png", "svg")
    ]
    for file in written:
        assert file.read_bytes() == (tmp_path / "other" / file.name).read_bytes()


def test_contour_marks_every_critical_point(run: list[records.Record]) -> None:
    figure = quadratic_figure(run)
    labels = " ".join(text.get_text() for axes in figure.axes for text in axes.texts)
    for name in ("P1 maximum", "P2 minimum", "P3 minimum", "P4 saddle", "ML"):
        assert name in labels


def test_missing_records_are_named() -> None:
    with pytest.raises(QuietnnError, match=r"no record with .*relation.* figures need the records of a whole"):
        theory_figures([])
