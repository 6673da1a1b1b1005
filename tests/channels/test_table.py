"""Channels by name. One is a file and a row: after that it is everywhere that a channel can be named."""

import inspect
import math
import re
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
from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Observation, Rated
from quietnn.channels.memories import PCM
from quietnn.channels.moments import effective_wnr_db
from quietnn.channels.quantisation import Quantisation
from quietnn.channels.table import CHANNELS, NamedChannel, channel_named
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.experiments.config import load_config
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep
from quietnn.reports.titles import channel_title, level_ticks, over_channels, wnr_axis
from quietnn.targets import noisy_weights
from quietnn.tasks.models.resnet import ThinResNet
from quietnn.weights import Weights

RUN = CliRunner()
BUILT_IN = [name for name, row in CHANNELS.items() if not row.package]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "channels.md"


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
        assert row.level in inspect.signature(row.kind).parameters, name
        assert row.label


def test_the_table_needs_no_torch() -> None:
    program = "import sys, quietnn.reports.titles; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_the_page_tells_what_each_channel_is_set_by() -> None:
    rows = dict(re.findall(r"^\| `([a-z]+)` \|[^|]*\| `(\w+)`", PAGE.read_text(encoding="utf-8"), re.M))
    assert len(rows) >= 10
    assert rows == {name: row.level for name, row in CHANNELS.items() if name in rows}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_channel_can_be_named_and_used(name: str, shapes: dict[str, Tensor]) -> None:
    text = "protected:names=gauss*" if name == "protected" else name
    channel = channel_named(text, level=CHANNELS[name].example)
    observation = channel.transmit(shapes, seed=0)
    assert observation.received.keys() == shapes.keys()
    assert 0 < effective_wnr_db(shapes, observation.noise_variance) < 40


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_scalars_go_through_every_channel(name: str, dtype: torch.dtype) -> None:
    weights = {"scale": torch.tensor(0.7, dtype=dtype), "w": torch.linspace(-1, 1, 50, dtype=dtype)}
    text = "protected:names=scale" if name == "protected" else name
    observation = channel_named(text, level=CHANNELS[name].example).transmit(weights, seed=0)
    assert observation.received["scale"].shape == ()
    assert observation.received["scale"].dtype == dtype


def test_settings_have_the_types_of_their_fields() -> None:
    assert channel_named("quantise:num_bits=4, dither=true,clip=mse") == Quantisation(4, dither=True, clip="mse")
    assert channel_named("pcm:seconds=1e3,drift=0.5") == PCM(1000.0, drift=0.5)
    assert channel_named("awgn:wnr_db=3,power=second-moment") == AWGN(wnr_db=3.0, power="second-moment")


@pytest.mark.parametrize(
    ("text", "level", "word"),
    [
        ("flash", None, "pcm"),
        ("quantize", None, "did you mean 'quantise'"),
        ("pcm:second=3", None, "did you mean 'seconds'"),
        ("pcm", None, "needs seconds"),
        ("quantise:num_bits=four", None, "a number"),
        ("quantise:num_bits=2.5", None, "whole number"),
        ("quantise:num_bits=nan", None, "whole number"),
        ("quantise:num_bits=inf", None, "whole number"),
        ("quantise", float("nan"), "whole number"),
        ("fading:wnr_db=10,block=1e30", None, "1 to 2147483648"),
        ("reram:seconds=1,spread=1e300", None, "0 to 1000"),
        ("pcm:seconds=1e300", None, "0 to 1e.12"),
        ("protected:wnr_db=0,copies=0", None, "1 to 1000"),
        ("protected:wnr_db=0,copies=1e9", None, "1 to 1000"),
        ("fading:wnr_db=-400", None, "-100 or more"),
        ("sionna:wnr_db=10,delay_spread=1", None, "seconds, for example 1e-7"),
        ("quantise:num_bits=4,dither=yes", None, "true or false"),
        ("quantise:num_bits", None, "key=value"),
        ("quantise:num_bits=4", 3.0, "varied"),
        ("quantise:num_bits=1", None, "2 to 16"),
        ("awgn", None, "exactly one"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, level: float | None, word: str) -> None:
    with pytest.raises(QuietnnError, match=word):
        channel_named(text, level)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="channel is None; write a name"):
        channel_named(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["quantise", "truncate", "pcm", "reram", "digital"])
@pytest.mark.parametrize(
    "weights", [{"w": torch.zeros(5)}, {"w": torch.tensor(0.5)}, {}], ids=["zeros", "scalar", "none"]
)
def test_odd_weights_come_through(name: str, weights: dict[str, Tensor]) -> None:
    received = channel_named(name, level=CHANNELS[name].example).transmit(weights, seed=0).received
    assert received.keys() == weights.keys()
    assert all(torch.isfinite(tensor).all() for tensor in received.values())


@pytest.mark.parametrize("preset", ["protected-measured", "protected"])
def test_the_rival_of_a_protected_preset_takes_as_many_channel_uses(preset: str) -> None:
    def settings(name: str) -> NoisyInference:
        return load_config(NoisyInference, Path("media-radio"), preset=name)

    protected = settings(preset)
    channel = channel_named(protected.channel, protected.wnr_db[0])
    assert isinstance(channel, Rated)
    fair = protected.wnr_db[0] + 10 * math.log10(channel.rate(noisy_weights(ThinResNet(3))))
    rivals = [*settings("white-rival").wnr_db, *settings("white").wnr_db]
    assert min(abs(rival - fair) for rival in rivals) < 0.005
