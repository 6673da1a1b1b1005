"""Mutated files, headers and bodies: a result or a `QuietnnError`, never anything else, and never a hang."""

import faulthandler
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.inspect import inspect_checkpoint
from quietnn.checkpoints.temperatures import TunedTemperatures, read_temperatures, write_temperatures
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import QuietnnError
from quietnn.repairs.affine import Temperatures

Make = Callable[[Path], None]
Use = Callable[[Path, Path], None]
ONE = Streaming(num_threads=1, chunk=1)
WORDS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"-1", b"0", b"1e9", b"null", b"true", b'"F16"', b'"BF16"', b'"I64"']
WORDS += [b'"data_offsets"', b'"__metadata__"', b'"shape"', b"9" * 30, b"\xff", b"\\ud800", b'"a.weight"', b" "]


def original() -> bytes:
    tensors = {
        "a.weight": torch.linspace(-1, 1, 24).view(4, 6),
        "a.bias": torch.ones(4),
        "b.weight": torch.ones(5, 3, dtype=torch.bfloat16),
        "n.weight": torch.ones(4),
        "count": torch.tensor(3),
    }
    return save(tensors, metadata={"format": "pt"})


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One to three changes: bytes, words, cuts, copies, lengths, fields of the header; half of them in the body."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        header = min(8 + int.from_bytes(changed[:8], "little"), len(changed)) if len(changed) >= 8 else len(changed)
        low, high = rng.choice(((0, 8), (8, header), (header, len(changed)), (header, len(changed))))
        place = rng.randrange(low, max(low + 1, high))
        kind = rng.randrange(9)
        if kind in (0, 7, 8):
            changed[place : place + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            changed[place : place + rng.randrange(4)] = rng.choice(WORDS)
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            changed[place:place] = changed[rng.randrange(len(changed) + 1) :][: rng.randrange(40)]
        elif kind == 4:
            changed[:8] = rng.choice((0, 1, 2**63, len(changed), rng.randrange(2**16))).to_bytes(8, "little")
        else:
            changed = bytearray(mutate_header(bytes(changed), rng))
    return bytes(changed)


def mutate_header(content: bytes, rng: random.Random) -> bytes:
    """Change one field of one tensor, with the length put right: deeper than bytes at random would get."""
    length = int.from_bytes(content[:8], "little")
    try:
        fields = json.loads(content[8 : 8 + length])
        entry = fields[rng.choice(list(fields))]
        key = rng.choice(list(entry))
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return content
    entry[key] = rng.choice((0, -1, 2**63, [], [0, 8], [4, 6], [2**62, 4], "F64", "F8_E4M3", "F4", None, {}, [[1]]))
    text = json.dumps(fields).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


@pytest.mark.parametrize(
    ("num_files", "seconds"), [(1_500, 40.0), pytest.param(20_000, 60.0, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_mutated_files(tmp_path: Path, num_files: int, seconds: float) -> None:
    rng, content = random.Random(11), original()
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    accepted, refused, end = 0, 0, time.monotonic() + seconds
    faulthandler.dump_traceback_later(seconds + 60, exit=True)  # a file that hangs the reader ends the tests
    for number in range(num_files):
        assert time.monotonic() < end, f"{number} of {num_files} files took {seconds:g} s"
        source.unlink(missing_ok=True)  # a new file is quicker than emptying an old one
        source.write_bytes(mutate(content, rng))
        try:
            if number % 20:
                inspect_checkpoint(source, noise_variance=0.1, streaming=ONE)
            else:
                denoise_checkpoint(source, out, noise_variance=0.1, overwrite=True, streaming=ONE)
                readable_like(source, out)
            accepted += 1
        except QuietnnError:
            refused += 1
    faulthandler.cancel_dump_traceback_later()
    assert accepted > num_files / 20
    assert refused > num_files / 3


def torch_file(path: Path) -> None:
    torch.save({"epoch": 3, "model": {"a.weight": torch.linspace(-1, 1, 24).view(4, 6), "n": torch.ones(4)}}, path)


def index(path: Path) -> None:
    (path.parent / "model.safetensors").write_bytes(original())
    names = ("a.weight", "a.bias", "b.weight", "n.weight", "count")
    path.write_text(json.dumps({"weight_map": dict.fromkeys(names, "model.safetensors")}))


def history(path: Path) -> None:
    by_tensor = {"noise_variance_by_tensor": {"a.weight": 0.1}, "gain_by_tensor": {"a.weight": 0.5}}
    path.write_text(json.dumps([{"verb": "transmit", "tensors": ["a.weight"], "seed": 1, **by_tensor}]))


def temperatures(path: Path) -> None:
    write_temperatures(path, TunedTemperatures("whole", {"whole": Temperatures(0.5, 0.1)}, 0.1))


def use_history(path: Path, out: Path) -> None:
    """Denoise by a record that stands in a file's metadata."""
    source = path.with_name("in.safetensors")
    text = path.read_bytes().decode(errors="replace")
    source.write_bytes(save({"a.weight": torch.linspace(-1, 1, 24).view(4, 6)}, metadata={"quietnn": text}))
    json.dumps(inspect_checkpoint(source, streaming=ONE).checkpoint.history, allow_nan=False)
    denoise_checkpoint(source, out, recorded=True, overwrite=True, streaming=ONE)


def use_temperatures(path: Path, out: Path) -> None:
    source = path.with_name("in.safetensors")
    source.write_bytes(original())
    denoise_checkpoint(source, out, temperatures=read_temperatures(path), overwrite=True, streaming=ONE)


def use_checkpoint(path: Path, out: Path) -> None:
    source = path if path.suffix == ".pt" else path.parent
    denoise_checkpoint(source, out, noise_variance=0.1, overwrite=True, streaming=ONE)


@pytest.mark.parametrize("num_files", [150, pytest.param(1_500, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize(
    ("make", "name", "use", "out"),
    [
        (torch_file, "in.pt", use_checkpoint, "out.pt"),
        (index, "model.safetensors.index.json", use_checkpoint, "out"),
        (history, "history.json", use_history, "out.safetensors"),
        (temperatures, "t.json", use_temperatures, "out.safetensors"),
    ],
    ids=["torch", "index", "history", "temperatures"],
)
def test_other_mutated_files(tmp_path: Path, make: Make, name: str, use: Use, out: str, num_files: int) -> None:
    (tmp_path / "source").mkdir()
    path, rng, refused = tmp_path / "source" / name, random.Random(12), 0
    make(path)
    content = path.read_bytes()
    use(path, tmp_path / out)
    faulthandler.dump_traceback_later(180, exit=True)
    for _ in range(num_files):
        path.unlink()
        path.write_bytes(mutate(content, rng))
        try:
            use(path, tmp_path / out)
        except QuietnnError:
            refused += 1
    faulthandler.cancel_dump_traceback_later()
    assert refused > num_files / 3


def readable_like(source: Path, out: Path) -> None:
    """What we accept and the safetensors library reads, it must read again once written."""
    try:
        names = load_file(source).keys()
    except (SafetensorError, KeyError, RuntimeError):
        return
    assert load_file(out).keys() == names
