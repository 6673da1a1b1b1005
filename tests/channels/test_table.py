"""A channel is one file and one row: after that it is everywhere that a channel can be named."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

import quietnn
from quietnn import records
from quietnn.channels.base import Observation
from quietnn.channels.named import channel_named
from quietnn.channels.table import CHANNELS, NamedChannel
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep
from quietnn.reports.titles import channel_title, level_ticks, over_channels, wnr_axis
from quietnn.weights import Weights

RUN = CliRunner()


@dataclass(frozen=True)
class Toy:
    """Every weight is moved up or down by one step."""

    num_steps: int
    step: float = 0.01
    by_tensor = True

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor]]:
        """Up or down by the parity of its place."""
        size = self.num_steps * self.step
        received = {}
        for name, tensor in weights.items():
            signs = 1.0 - 2.0 * ((torch.arange(tensor.numel()) + seed) % 2)
            received[name] = tensor + size * signs.reshape(tensor.shape).to(tensor.dtype)
        return Observation(received, size**2)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHANNELS, "toy", NamedChannel(Toy, "num_steps", "a toy", 2))


@pytest.mark.usefixtures("toy")
def test_transmit_knows_a_new_row(tmp_path: Path) -> None:
    sent = quietnn.transmit(torch.zeros(4), channel="toy:num_steps=3", seed=0)
    assert sent.received.tolist() == pytest.approx([0.03, -0.03, 0.03, -0.03])
    assert sent.noise_variance == pytest.approx(0.0009)
    with pytest.raises(InvalidConfig, match="write for example toy:num_steps=2"):
        channel_named("toy")


@pytest.mark.usefixtures("toy")
def test_so_does_a_sweep_and_its_figures(tmp_path: Path) -> None:
    config = NoisyInference("toy", "digits", (), ("ml", "mmse"), 1, num_test_examples=20, channel="toy", levels=(1, 2))
    found = [record for record in sweep(config, tmp_path, engine="inline") if record["method"] != "clean"]
    assert {(record["channel"], record["level"]) for record in found} == {("toy", 1.0), ("toy", 2.0)}
    assert over_channels("digits", found) == "digits over a toy"
    assert channel_title("toy:step=0.1") == "a toy (step=0.1)"
    assert wnr_axis(found) == "effective WNR (dB)"
    assert sorted(level_ticks(found).values()) == ["1 step", "2 steps"]
    page = RUN.invoke(app, ["analyze", str(tmp_path)])
    assert page.exit_code == 0, page.output
    assert "a toy" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("toy")
def test_so_does_the_command_line(tmp_path: Path) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({"fc.weight": torch.zeros(2, 2)}, source)
    sent = RUN.invoke(app, ["transmit", str(source), str(out), "--channel", "toy:num_steps=3", "--seed", "0"])
    assert sent.exit_code == 0, sent.output
    assert load_file(out)["fc.weight"].flatten().tolist() == pytest.approx([0.03, -0.03, 0.03, -0.03])
    options = ["--channel", "toy:num_steps=1", "--out", str(tmp_path / "shown")]
    shown = RUN.invoke(app, ["channels", "digits", *options])
    assert shown.exit_code == 0, shown.output
    assert next(records.read(tmp_path / "shown" / "records.jsonl").__iter__())["channel"] == "toy:num_steps=1"


def test_every_row_leads_to_a_channel_that_can_be_set_by_its_level() -> None:
    for name, row in CHANNELS.items():
        assert row.level in row.kind.__dataclass_fields__, name  # type: ignore[attr-defined]
        assert row.label


def test_the_table_needs_no_torch() -> None:
    program = "import sys, quietnn.reports.titles; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
