"""The output is absent, old or complete, whatever happens: refusals, full disks, kills at any moment."""

import itertools
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quietnn.checkpoints.atomic import replacing_file, replacing_folder
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.workers import Streaming, run
from quietnn.errors import InvalidConfig, MissingData, QuietnnError

Leftovers = Callable[[], list[str]]
VARIANCES = (0.01, 0.02)
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["quietnn.checkpoints.denoise", "quietnn.cli.main"])


def limited(verb: str, source: Path, out: Path, limit: int) -> None:
    """The command line where no file may grow past a limit; leaves with its exit code."""
    from quietnn.cli.main import main

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = ["quietnn", verb, str(source), str(out), "--noise-variance", "0.01", "--overwrite"]
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):  # pytest's stderr is a file, under the limit
        main()


def unprivileged_denoise(source: Path, out: Path) -> None:
    """The command line as a user who owns nothing."""
    from quietnn.cli.main import main

    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    sys.argv = ["quietnn", "denoise", str(source), str(out), "--noise-variance", "0.01", "--overwrite"]
    main()


def endless_denoise(source: Path, out: Path) -> None:
    """Denoise again and again until killed, with one noise variance and the other in turn."""
    for noise_variance in itertools.cycle(VARIANCES):
        denoise_checkpoint(source, out, noise_variance=noise_variance, overwrite=True, streaming=Streaming(chunk=1))


def exit_code(target: Callable[..., None], *arguments: object) -> int | None:
    process = SERVER.Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("limit", [10, 1000, 100_000, 270_000])
@pytest.mark.parametrize("verb", ["denoise", "transmit"])
def test_a_file_that_does_not_fit_leaves_nothing(
    tmp_path: Path, file: Path, leftovers: Leftovers, verb: str, limit: int
) -> None:
    out = tmp_path / "out.safetensors"
    assert exit_code(limited, verb, file, out, limit) == 2
    assert not out.exists()
    out.write_text("old")
    assert exit_code(limited, verb, file, out, limit) == 2
    assert out.read_text() == "old"
    assert leftovers() == []


def test_a_folder_that_does_not_fit_leaves_nothing(tmp_path: Path, sharded: Path, leftovers: Leftovers) -> None:
    assert exit_code(limited, "denoise", sharded, tmp_path / "out", 200_000) == 2
    assert not (tmp_path / "out").exists()
    assert leftovers() == []


@pytest.mark.parametrize("out", ["out.safetensors", "here.safetensors"])
def test_a_read_only_folder(tmp_path: Path, file: Path, out: str) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "here.safetensors").write_text("old")
    folder.chmod(0o555)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    assert exit_code(unprivileged_denoise, file, folder / out) == 2
    assert [path.name for path in folder.iterdir()] == ["here.safetensors"]
    assert (folder / "here.safetensors").read_text() == "old"
    folder.chmod(0o755)


def killed_runs(source: Path, out: Path, expected: list[dict[str, Tensor]], num_kills: int) -> int:
    """Kill so many runs at random moments and look at the output after each; how often there was one."""
    moments, present = random.Random(5), 0
    process = SERVER.Process(target=endless_denoise, args=(source, out))
    process.start()
    deadline = time.monotonic() + 120  # the first one waits for the server to import
    while not out.exists():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(num_kills):
        time.sleep(moments.uniform(0.0, 0.25))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if out.exists():
            present += 1
            files = sorted(out.glob("*.safetensors")) if out.is_dir() else [out]
            found = {name: tensor for path in files for name, tensor in load_file(path).items()}
            assert found.keys() == expected[0].keys()
            # One of the two whole outputs, never some shards of one and some of the other.
            assert any(all(found[name].equal(tensor) for name, tensor in one.items()) for one in expected)
            if out.is_dir():
                assert {path.name for path in out.iterdir()} == {path.name for path in source.iterdir()}
        process = SERVER.Process(target=endless_denoise, args=(source, out))
        process.start()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    return present


@pytest.mark.parametrize("num_kills", [4, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["file", "sharded"])
def test_a_killed_run_leaves_the_old_output_or_a_whole_one(
    tmp_path: Path, kind: str, num_kills: int, request: pytest.FixtureRequest
) -> None:
    source: Path = request.getfixturevalue(kind)
    suffix = "" if source.is_dir() else ".safetensors"
    whole, out = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    expected = []
    for noise_variance in VARIANCES:
        denoise_checkpoint(source, whole, noise_variance=noise_variance, overwrite=True)
        files = sorted(whole.glob("*.safetensors")) if whole.is_dir() else [whole]
        expected.append({name: tensor.clone() for path in files for name, tensor in load_file(path).items()})
    assert killed_runs(source, out, expected, num_kills) > 0
    denoise_checkpoint(source, out, noise_variance=0.01, overwrite=True)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_an_old_output_is_replaced_only_when_asked(tmp_path: Path, sharded: Path, leftovers: Leftovers) -> None:
    out = tmp_path / "out"
    out.mkdir()
    denoise_checkpoint(sharded, out, noise_variance=0.01)  # an empty folder is no output
    (out / "mine.txt").write_text("mine")
    with pytest.raises(InvalidConfig, match="there already"):
        denoise_checkpoint(sharded, out, noise_variance=0.02)
    assert (out / "mine.txt").exists()
    denoise_checkpoint(sharded, out, noise_variance=0.02, overwrite=True)
    assert not (out / "mine.txt").exists()
    assert leftovers() == []


def test_outputs_that_would_hurt_the_input(tmp_path: Path, file: Path, sharded: Path) -> None:
    before = file.read_bytes()
    (tmp_path / "link.safetensors").symlink_to(file)
    for source, out, message in (
        (file, file, "the input itself"),
        (file, tmp_path / "link.safetensors", "the input itself"),
        (sharded, sharded, "the input itself"),
        (sharded, sharded / "out", "inside each other"),
        (sharded, tmp_path, "inside each other"),
        (sharded, file, "is a file and the input a folder"),
        (file, sharded, "is a folder and the input a file"),
        (file, tmp_path / "out.pt", "must end in .safetensors"),
        (sharded, Path(), "no name of its own"),
        (sharded, Path(".."), "no name of its own"),
    ):
        with pytest.raises(InvalidConfig, match=message):
            denoise_checkpoint(source, out, noise_variance=0.01, overwrite=True)
    with pytest.raises(MissingData, match="make it first"):
        denoise_checkpoint(file, tmp_path / "no" / "out.safetensors", noise_variance=0.01)
    assert file.read_bytes() == before


def test_a_disk_that_is_too_full_is_seen_before_reading(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quietnn.checkpoints import atomic

    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: _Usage())
    with pytest.raises(QuietnnError, match="has 5 free"):
        denoise_checkpoint(file, tmp_path / "out.safetensors", noise_variance=0.01)


class _Usage:
    free = 5


def test_what_a_killed_run_left_is_removed_and_what_a_living_one_holds_is_not(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / ".out.123.part").mkdir()
    (tmp_path / ".out.124.part").write_text("half")
    (tmp_path / ".out.mine.part").write_text("not ours")
    with replacing_folder(out) as partial:
        (partial / "a").write_text("new")
        with replacing_file(tmp_path / "other") as other:
            other.write_text("x")
        assert partial.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.mine.part", "other", "out"]


def test_two_writers_in_one_process_do_not_hurt_each_other(tmp_path: Path) -> None:
    with replacing_file(tmp_path / "out") as partial:
        partial.write_text("first")
        with pytest.raises(QuietnnError, match="File exists"), replacing_file(tmp_path / "out"):
            pass
    assert (tmp_path / "out").read_text() == "first"


def test_an_exchange_without_the_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quietnn.checkpoints import atomic

    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda *arguments, **options: None)
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old")
    with replacing_folder(out) as partial:
        (partial / "new").write_text("new")
    assert [path.name for path in out.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_in_one_thread_stops_all_and_leaves_nothing(tmp_path: Path, file: Path, leftovers: Leftovers) -> None:
    def fail(num_bytes: int) -> None:
        raise InterruptedError("stop")

    with pytest.raises(QuietnnError, match="cannot write"):
        denoise_after_statistics(file, tmp_path / "out.safetensors", fail)
    assert not (tmp_path / "out.safetensors").exists()
    assert leftovers() == []

    done: list[int] = []

    def work(job: int, buffer: Tensor) -> None:
        done.append(job)
        if job == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        run(range(1, 1000), work, 2, 1)
    assert len(done) < 999


def denoise_after_statistics(file: Path, out: Path, fail: Callable[[int], None]) -> None:
    """Denoise with a callback that fails in the second pass."""
    seen = 0
    total = sum(tensor.nbytes for name, tensor in load_file(file).items() if name.startswith(("conv", "fc", "scale")))

    def progress(num_bytes: int) -> None:
        nonlocal seen
        seen += num_bytes
        if seen > total:
            fail(num_bytes)

    denoise_checkpoint(file, out, noise_variance=0.01, streaming=Streaming(num_threads=2, on_progress=progress))


def test_torch_keeps_its_number_of_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    save_file({"a.weight": torch.randn(3, 3)}, tmp_path / "in.safetensors")
    denoise_checkpoint(tmp_path / "in.safetensors", tmp_path / "out.safetensors", noise_variance=0.1)
    assert torch.get_num_threads() == before


def test_numbers_below_one() -> None:
    for options in ({"num_threads": 0}, {"chunk": 0}):
        with pytest.raises(InvalidConfig, match="at least 1"):
            Streaming(**options)  # type: ignore[arg-type]
