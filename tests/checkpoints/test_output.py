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

from quietnn.channels.awgn import AWGN
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.transmit import transmit_checkpoint
from quietnn.checkpoints.workers import Streaming, run
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData, QuietnnError
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


def test_a_link_of_the_input_into_the_output(tmp_path: Path, file: Path, state: dict[str, Tensor]) -> None:
    """Replacing the output would remove what is being read."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    file.rename(out / "model.safetensors")
    (source / "model.safetensors").symlink_to(out / "model.safetensors")
    with pytest.raises(InvalidConfig, match="is a link into"):
        denoise_checkpoint(source, out, noise_variance=0.01, overwrite=True)
    assert load_file(out / "model.safetensors")["fc.weight"].equal(state["fc.weight"])


@pytest.mark.parametrize("there", ["empty", "full", "nothing"])
def test_an_output_folder_that_is_a_link(tmp_path: Path, sharded: Path, there: str) -> None:
    if there != "nothing":
        (tmp_path / there).mkdir()
    if there == "full":
        (tmp_path / "full" / "config.json").write_text("{}")
    (tmp_path / "out").symlink_to(tmp_path / there)
    with pytest.raises(InvalidConfig, match=r"out is a link; give the folder itself"):
        denoise_checkpoint(sharded, tmp_path / "out", noise_variance=0.01, overwrite=True)
    assert (tmp_path / "out").is_symlink()


def test_a_folder_without_a_model_is_not_replaced(tmp_path: Path, sharded: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("mine")
    with pytest.raises(InvalidConfig, match=r"does not look like a model \(one.jpg is in it\)"):
        denoise_checkpoint(sharded, tmp_path / "photos", noise_variance=0.01, overwrite=True)
    assert (tmp_path / "photos" / "one.jpg").read_text() == "mine"


def test_links_in_a_folder_are_followed(tmp_path: Path, sharded: Path) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "notes.txt").write_text("far")
    (sharded / "linked").symlink_to(tmp_path / "elsewhere")
    (sharded / "linked.txt").symlink_to(sharded / "sub" / "notes.txt")
    denoise_checkpoint(sharded, tmp_path / "out", noise_variance=0.01)
    assert (tmp_path / "out" / "linked" / "deep" / "notes.txt").read_text() == "far"
    assert (tmp_path / "out" / "linked.txt").read_text() == "hello"
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


@pytest.mark.parametrize(("target", "message"), [("..", "that it lies in"), ("nowhere", "a link to nothing")])
def test_links_that_lead_nowhere(tmp_path: Path, sharded: Path, target: str, message: str) -> None:
    (sharded / "sub" / "link").symlink_to(target)
    with pytest.raises(InvalidWeights, match=message):
        denoise_checkpoint(sharded, tmp_path / "out", noise_variance=0.01)
    assert not (tmp_path / "out").exists()


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


@pytest.mark.parametrize("kind", ["file", "sharded"])
def test_what_others_may_not_read_stays_so(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    source: Path = request.getfixturevalue(kind)
    files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    for file, mode in zip(files, (0o600, 0o644, 0o400), strict=False):
        file.chmod(mode)
    if source.is_dir():
        source.chmod(0o700)
    out = tmp_path / f"out{source.suffix}"
    denoise_checkpoint(source, out, noise_variance=0.01)
    assert out.stat().st_mode == source.stat().st_mode
    for file in files:
        copied = out / file.name if source.is_dir() else out
        assert copied.stat().st_mode & 0o777 == file.stat().st_mode & 0o777 | 0o200


def test_a_disk_that_is_too_full_is_seen_before_reading(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quietnn.checkpoints import opening

    monkeypatch.setattr(opening.shutil, "disk_usage", lambda folder: _Usage())
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


def test_memory_does_not_grow_with_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(128))
    assert (Streaming().readers, Streaming().writers) == (24, 24)
    assert Streaming(num_threads=50).writers == 50


def test_numbers_below_one() -> None:
    for options in ({"num_threads": 0}, {"chunk": 0}):
        with pytest.raises(InvalidConfig, match="at least 1"):
            Streaming(**options)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("kind", ["file", "sharded"])
def test_every_file_and_folder_is_made_durable(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the output gets its name, all that is in it is on the disk; afterwards the name is, too."""
    source: Path = request.getfixturevalue(kind)
    out = tmp_path / ("out" if source.is_dir() else "out.safetensors")
    synced: list[Path] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)
    denoise_checkpoint(source, out, noise_variance=0.01)
    [partial] = {path for path in synced if path.parent == tmp_path and path.name.startswith(f".{out.name}.")}
    expected = {partial / path.name for path in source.iterdir()} if source.is_dir() else set()
    assert {partial, *expected, tmp_path} <= set(synced)
    assert synced[-1] == tmp_path


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
    process = subprocess.Popen(
        [*command, "--wnr-db", "3", "--seed", "1", "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # tests under nohup would hand on a deaf ear
    )
    while process.poll() is None and not list(tmp_path.glob(".out*.part")):
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait() == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_threads_that_cannot_be_had(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python and torch tell of starvation in their own ways; the user is told what to do."""
    from quietnn.checkpoints import workers

    def starved(num_bytes: int) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(workers, "whole_pages", starved)
    with pytest.raises(QuietnnError, match="fewer with --threads"):
        denoise_checkpoint(file, tmp_path / "out.safetensors", noise_variance=0.01)
    with pytest.raises(InvalidConfig, match="more than 256"):
        Streaming(num_threads=100_000)


def test_shards_of_two_copies(sharded: Path, tmp_path: Path) -> None:
    """A shard that met another noise than the first one is from another copy of the model."""
    noisy = tmp_path / "noisy"
    transmit_checkpoint(sharded, noisy, channel=AWGN(wnr_db=10.0), seed=1)
    last = max(noisy.glob("*.safetensors"))
    last.write_bytes((sharded / last.name).read_bytes())
    with pytest.raises(InvalidWeights, match="from one copy"):
        denoise_checkpoint(noisy, tmp_path / "out", recorded=True)
