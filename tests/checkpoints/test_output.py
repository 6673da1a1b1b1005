"""The output is absent, old or complete, whatever happens: refusals, full disks, kills at any moment."""

import ctypes
import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import QuietnnError
from quietnn.files import replacing_file, replacing_folder

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


def denoise_with_few_files(source: Path, out: Path, num_files: int) -> None:
    """Denoise where only so many files may be open at once."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, num_files))
    denoise_checkpoint(source, out, noise_variance=0.01)


def lose_privileges() -> None:
    """Go on as the same user with nothing but the rights that files and folders grant.

    Root gives up its capabilities and stays their owner, so that this works below any folder and opens none to others.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version_3, this_process = 0x20080522, 0
    if libc.capset((ctypes.c_uint32 * 2)(version_3, this_process), (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def unprivileged_refusal(source: Path, out: Path, message: str) -> None:
    """Denoise without privileges; leaves with 0 if that is refused with these words."""
    lose_privileges()
    try:
        denoise_checkpoint(source, out, noise_variance=0.01)
    except QuietnnError as error:
        sys.exit(0 if message in str(error) else 1)
    sys.exit(1)


def unprivileged_denoise(source: Path, out: Path) -> None:
    """The command line without privileges."""
    from quietnn.cli.main import main

    lose_privileges()
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


def test_another_file_that_cannot_be_read_is_named(tmp_path: Path, sharded: Path) -> None:
    (tmp_path / "open").mkdir()
    notes = sharded / "sub" / "notes.txt"
    notes.chmod(0)
    assert exit_code(unprivileged_refusal, sharded, tmp_path / "open" / "out", f"cannot read {notes}") == 0
    assert list((tmp_path / "open").iterdir()) == []


def test_more_shards_than_may_be_open(tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    weight_map = {f"l{number}.weight": f"model-{number}.safetensors" for number in range(150)}
    for name, shard in weight_map.items():
        save_file({name: torch.randn(3, 3)}, source / shard)
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert exit_code(denoise_with_few_files, source, tmp_path / "out", 100) == 0
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 150


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
        with replacing_file(tmp_path / "out") as other:
            other.write_text("second")
        assert (tmp_path / "out").read_text() == "second"
    assert (tmp_path / "out").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_exchange_without_the_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quietnn import files

    monkeypatch.setattr(files.ctypes, "CDLL", lambda *arguments, **options: None)
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old")
    with replacing_folder(out) as partial:
        (partial / "new").write_text("new")
    assert [path.name for path in out.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", ["file", "sharded"])
@pytest.mark.parametrize("system_call", [True, False])
def test_what_appears_meanwhile_is_not_destroyed_unasked(
    tmp_path: Path, kind: str, system_call: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place was free when the run began; whatever is there when it ends belongs to somebody else."""
    from quietnn import files

    if not system_call:
        monkeypatch.setattr(files.ctypes, "CDLL", lambda *arguments, **options: None)
    source: Path = request.getfixturevalue(kind)
    out = tmp_path / ("out" if source.is_dir() else "out.safetensors")
    thesis = out / "thesis.txt" if source.is_dir() else out

    def appear(num_bytes: int) -> None:
        thesis.parent.mkdir(exist_ok=True)
        thesis.write_text("precious")

    with pytest.raises(QuietnnError, match="appeared in the meantime"):
        denoise_checkpoint(source, out, noise_variance=0.01, streaming=Streaming(on_progress=appear))
    assert thesis.read_text() == "precious"
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")]
    denoise_checkpoint(source, tmp_path / f"free{out.suffix}", noise_variance=0.01)


def peak_of_denoising(source: Path, out: Path) -> None:
    """Denoise, and leave with a code that says whether memory stayed small: the file alone would take 400 MB."""
    denoise_checkpoint(source.parent / "small.safetensors", out, noise_variance=0.01, overwrite=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    denoise_checkpoint(source, out, noise_variance=0.01, overwrite=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.exit(0 if grown < 150_000 else min(grown // 10_000, 255))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    big = {f"layers.{index}.weight": torch.randn(2048, 2048).half() for index in range(48)}
    save_file(big, tmp_path / "big.safetensors")
    save_file({"layers.0.weight": torch.randn(64, 64)}, tmp_path / "small.safetensors")
    process = SERVER.Process(
        target=peak_of_denoising, args=(tmp_path / "big.safetensors", tmp_path / "out.safetensors")
    )
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_stop_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    source = tmp_path / "in.safetensors"
    save_file({f"layers.{index}.weight": torch.randn(1024, 1024) for index in range(24)}, source)
    command = [sys.executable, "-m", "quietnn.cli.main", "transmit", str(source), str(tmp_path / "out.safetensors")]
    for _ in range(5):  # a busy machine may see the part so late that the command is done
        process = subprocess.Popen(
            [*command, "--wnr-db", "3", "--seed", "1", "--threads", "1", "--overwrite"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # tests under nohup would hand on a deaf ear
        )
        while process.poll() is None and not list(tmp_path.glob(".out*.part")):
            time.sleep(0.01)
        process.send_signal(number)
        if process.wait() != 0:
            break
        (tmp_path / "out.safetensors").unlink()
    assert process.returncode == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]
