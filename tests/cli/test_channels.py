"""What channels do to the embedded network's weights, through the command."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.main import app
from quietnn.errors import QuietnnError
from quietnn.reports.error_figure import density_figure, quantile_figure

CHANNELS = ["awgn:wnr_db=10", "quantise:num_bits=3", "pcm:seconds=3600", "fading:wnr_db=10,block=32"]


def test_every_channel_is_compared_with_a_gaussian(tmp_path: Path) -> None:
    options = [part for channel in CHANNELS for part in ("--channel", channel)]
    result = CliRunner().invoke(app, ["channels", "digits", *options, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    models = {record["channel"]: record for record in records.read(tmp_path / "records.jsonl") if not record["layer"]}
    assert list(models) == CHANNELS
    white, coarse, _, fading = models.values()
    assert abs(white["excess_kurtosis"]) < 0.3
    assert abs(white["squared_over_told"] - 1) < 0.05
    assert coarse["distance"] > 3 * white["distance"]
    assert "rate" not in white
    assert fading["rate"] == pytest.approx(1.25, abs=0.05)  # eight pilots for every 32 symbols
    assert fading["excess_kurtosis"] > 3  # a mixture of noises, ...
    assert abs(fading["excess_kurtosis_by_told"]) < 1.5  # ... of which each is nearly Gaussian
    assert "quantise:num_bits=3" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "errors.svg").exists()
    assert (tmp_path / "quantiles.png").exists()


def test_the_former_name_of_the_command_still_works_and_says_so() -> None:
    arguments = ["digits", "--channel", "quantise:num_bits=3"]
    former, now = (CliRunner().invoke(app, [verb, *arguments]) for verb in ("media", "channels"))
    assert former.exit_code == 0
    assert former.stdout == now.stdout
    assert "quietnn media is called quietnn channels now" in former.stderr
    assert not now.stderr
    assert " media " not in CliRunner().invoke(app, ["--help"]).stdout


def test_without_records_there_is_no_figure() -> None:
    with pytest.raises(QuietnnError, match="quietnn channels"):
        density_figure([], reach=6.0)
    with pytest.raises(QuietnnError, match="quietnn channels"):
        quantile_figure([], probabilities=(0.5,))
