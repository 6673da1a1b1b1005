"""Channels from file to file hold a few tensors at a time, whatever they must know of all, and lose not a bit by it."""

import multiprocessing
import resource
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import quietnn
from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel
from quietnn.channels.quantisation import Quantisation
from quietnn.channels.repetition import Repetition
from quietnn.channels.table import channel_named
from quietnn.checkpoints.history import history
from quietnn.checkpoints.streamed import StreamedCheckpoint
from quietnn.checkpoints.transmit import transmit_checkpoint_through
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.weights import Weights

CHANNELS = [
    "awgn:wnr_db=3",
    "fading:wnr_db=10,block=64",
    "protected:wnr_db=5,names=fc.*|scale",
    "digital:wnr_db=9",
    "digital:wnr_db=9,per_tensor=false",
    "pcm:seconds=3600",
    pytest.param("aihwkit:seconds=3600,compensate=true", marks=pytest.mark.analog),
    pytest.param("aihwkit:kind=reram,seconds=86400", marks=pytest.mark.analog),
    pytest.param("sionna:wnr_db=10", marks=pytest.mark.wireless),
    pytest.param("sionna:wnr_db=10,profile=awgn", marks=pytest.mark.wireless),
]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
NOISY = ("scale", "conv.weight", "conv.bias", "fc.weight")
SERVER = multiprocessing.get_context("forkserver")
StateOf = Callable[..., dict[str, Tensor]]
Same = Callable[[Tensor, Tensor], bool]


def send(source: Path, out: Path, channel: Channel, streaming: Streaming | None = None) -> float:
    return transmit_checkpoint_through(
        source, out, channel=channel, description="", seed=3, overwrite=True, streaming=streaming
    )


def in_memory(state: Weights, channel: Channel) -> Weights:
    """What the library makes of weights where torch has three threads, which would show in last bits."""
    torch.set_num_threads(3)
    try:
        return quietnn.transmit(state, channel=channel, seed=3, noisy=NOISY).received
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_file_is_what_memory_would_be(
    channel: str, dtype: torch.dtype, tmp_path: Path, state_of: StateOf, same_bits: Same
) -> None:
    state, channel = state_of(dtype, num_values=140_000), channel_named(channel)
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file(state, source)
    expected, bytes_found = in_memory(state, channel), set()
    for threads, chunk in ((1, 10_000_000), (5, 1)):
        send(source, out, channel, Streaming(num_threads=threads, chunk=chunk))
        found = load_file(out)
        assert [name for name in state if not same_bits(found[name], expected[name])] == []
        bytes_found.add(out.read_bytes())
    assert len(bytes_found) == 1


@pytest.mark.parametrize("channel", CHANNELS)
def test_shards_and_torch_files_are_no_different(
    channel: str, tmp_path: Path, sharded: Path, state: dict[str, Tensor], same_bits: Same
) -> None:
    channel = channel_named(channel)
    expected = in_memory(state, channel)
    torch.save(state, tmp_path / "in.pt")
    torch.set_num_threads(3)
    try:
        send(sharded, tmp_path / "out", channel)
        send(tmp_path / "in.pt", tmp_path / "out.pt", channel)
    finally:
        torch.set_num_threads(1)
    shards = sorted((tmp_path / "out").glob("*.safetensors"))
    for found in (
        {name: tensor for shard in shards for name, tensor in load_file(shard).items()},
        torch.load(tmp_path / "out.pt", weights_only=True),
    ):
        assert [name for name in state if not same_bits(found[name], expected[name])] == []


@pytest.mark.analog
@pytest.mark.wireless
def test_many_tensors_on_many_threads_draw_from_torch_s_one_generator(tmp_path: Path, same_bits: Same) -> None:
    generator = torch.Generator().manual_seed(0)
    state = {f"{index}.weight": torch.randn(40, 50, generator=generator) for index in range(40)}
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file(state, source)
    for channel in ("aihwkit:seconds=3600", "sionna:wnr_db=10,profile=rayleigh"):
        expected = quietnn.transmit(state, channel=channel_named(channel), seed=3).received
        before = torch.get_rng_state()
        send(source, out, channel_named(channel), Streaming(num_threads=8))
        found = load_file(out)
        assert [name for name in state if not same_bits(found[name], expected[name])] == []
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("channel", "most"), [("pcm:seconds=1", 2), ("awgn:wnr_db=3", 3), ("fading:wnr_db=3", 3), ("digital:wnr_db=9", 10)]
)
def test_every_tensor_is_read_a_few_times(
    channel: str, most: int, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for what is recorded and once for what is written, and before that for what must be known of all."""
    reads: Counter[str] = Counter()
    read = StreamedCheckpoint.read
    monkeypatch.setattr(StreamedCheckpoint, "read", lambda self, name: reads.update([name]) or read(self, name))
    send(file, tmp_path / "out.safetensors", channel_named(channel))
    assert set(reads) == set(NOISY)
    assert max(reads.values()) <= most


@dataclass(frozen=True)
class Shuffled:
    """A channel of somebody's own that needs all tensors: noise by the number of them, told by layer."""

    refuse_fewer: int = 4

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        assert len(weights) >= self.refuse_fewer
        received = {name: 2 * tensor + len(weights) for name, tensor in weights.items()}
        noise = {name.rpartition(".")[0]: 0.5 for name in weights}
        return Observation(received, noise, dict.fromkeys(weights, 2.0), 4.0)


@pytest.mark.parametrize("channel", [Shuffled(), Repetition(Shuffled(), {"none": 2, "*": 1})], ids=["once", "repeated"])
def test_a_channel_that_needs_all_tensors_gets_them(
    channel: Channel, file: Path, state: dict[str, Tensor], tmp_path: Path, same_bits: Same
) -> None:
    out = tmp_path / "out.safetensors"
    send(file, out, channel)
    found, expected = load_file(out), in_memory(state, channel)
    assert [name for name in state if not same_bits(found[name], expected[name])] == []
    (told,) = history(StreamedCheckpoint.open(out).shards[0].header.metadata)
    assert told["noise_variance_by_tensor"] == dict.fromkeys(sorted(NOISY), 0.5)
    if isinstance(channel, Shuffled):
        assert set(told["gain_by_tensor"].values()) == {2.0}
        assert set(told["offset_by_tensor"].values()) == {4.0}


@pytest.mark.parametrize(
    ("channel", "error", "message"),
    [
        (Repetition(AWGN(wnr_db=3.0), {"nobody*": 4}), InvalidConfig, "no tensor fits 'nobody\\*'; name one of "),
        (Repetition(Quantisation(3), {"fc.*": 4}), InvalidConfig, r"Quantisation\(.*the same error in every copy"),
        (channel_named("protected:wnr_db=3,names=nobody"), InvalidConfig, "no tensor fits 'nobody'"),
    ],
    ids=["pattern", "same error", "protected"],
)
def test_what_repetition_refuses_leaves_nothing_behind(
    channel: Channel,
    error: type[QuietnnError],
    message: str,
    file: Path,
    state: dict[str, Tensor],
    tmp_path: Path,
    leftovers: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(*_: object, **__: object) -> None:
        raise AssertionError("something would be written")

    monkeypatch.setattr(StreamedCheckpoint, "write", write)
    with pytest.raises(error, match=message) as from_file:
        send(file, tmp_path / "out.safetensors", channel)
    with pytest.raises(error) as from_memory:
        quietnn.transmit({name: state[name] for name in sorted(NOISY)}, channel=channel, seed=3, noisy=sorted(NOISY))
    assert str(from_file.value) == str(from_memory.value)
    assert not (tmp_path / "out.safetensors").exists()
    assert leftovers() == []


@pytest.mark.parametrize(
    "channel", ["awgn:wnr_db=3", "fading:wnr_db=3", "protected:wnr_db=3,names=fc.*", "digital:wnr_db=9"]
)
def test_a_weight_that_is_no_number_is_named(channel: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    state["fc.weight"][3, 2] = torch.nan
    save_file(state, tmp_path / "in.safetensors")
    with pytest.raises(InvalidWeights, match=r"fc.weight holds 1 values that are not finite"):
        send(tmp_path / "in.safetensors", tmp_path / "out.safetensors", channel_named(channel))
    assert not (tmp_path / "out.safetensors").exists()


def growth(folder: Path, channel: str) -> None:
    """Send a few tensors, then many of the same size, and leave with the megabytes that this took beyond those."""
    peaks = []
    for name in ("few", "few", "many"):  # how far threads overlap is chance
        source = folder / f"{name}.safetensors"
        send(source, folder / "out.safetensors", channel_named(channel), Streaming(num_threads=2))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    sys.exit(min((peaks[2] - peaks[1]) // 1024, 255))


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param("quantise:num_bits=4", marks=pytest.mark.slow),
        pytest.param("fading:wnr_db=10", marks=pytest.mark.slow),
        "protected:wnr_db=10,names=0.*",
        pytest.param("digital:wnr_db=10", marks=pytest.mark.slow),
        pytest.param("aihwkit:seconds=3600", marks=[pytest.mark.analog, pytest.mark.slow]),
        pytest.param("sionna:wnr_db=10", marks=[pytest.mark.wireless, pytest.mark.slow]),
    ],
)
def test_memory_does_not_grow_with_the_number_of_tensors(channel: str, tmp_path: Path) -> None:
    """The many are 32 tensors of 4 MB: as sent and as received they would take 256 MB, 208 more than the few."""
    generator = torch.Generator().manual_seed(0)
    for name, number in (("few", 6), ("many", 32)):
        state = {f"{index}.weight": torch.randn(1024, 1024, generator=generator) for index in range(number)}
        save_file(state, tmp_path / f"{name}.safetensors")
    process = SERVER.Process(target=growth, args=(tmp_path, channel))
    process.start()
    process.join()
    assert process.exitcode is not None
    assert 0 <= process.exitcode < 100
