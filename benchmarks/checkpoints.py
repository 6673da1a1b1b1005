"""How near denoising a sharded checkpoint comes to `cp` and fsync of the same folder: one run, warm cache, in turn.

A folder of safetensors shards is made, then copied and made durable, denoised and transmitted, again and again; every
output is removed and the disk is quiet before the next one. Denoising runs in a process of its own: its peak resident
memory is that of the whole process, its time is taken inside (without the import of torch) and outside (with it). The
seconds of processor time tell what it would need on an idle machine, where the disk is the wall.
This process imports neither torch nor quietnn, so that nothing of its memory is counted.
"""

import argparse
import os
import shutil
import statistics as stats
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_RATIO, GOAL_MEGABYTES, GOAL_TRANSMIT = 1.3, 400, 1.5

MAKE = """
import json, sys, torch
from pathlib import Path
from safetensors.torch import save_file
folder, dtype, num_bytes, num_shards = Path(sys.argv[1]), getattr(torch, sys.argv[2]), int(sys.argv[3]), 8
folder.mkdir()
generator, weight_map, layer = torch.Generator().manual_seed(0), {}, 0
base = torch.randn(2048, 2048, generator=generator)
for shard in range(num_shards):
    tensors, size = {}, 0
    while size < num_bytes // num_shards:
        tensors[f"layers.{layer}.weight"] = (base * (0.01 + 0.0001 * layer)).to(dtype)
        tensors[f"layers.{layer}.bias"] = torch.full((2048,), 0.01, dtype=dtype)
        tensors[f"layers.{layer}.norm.weight"] = torch.ones(2048, dtype=dtype)
        size += 2048 * 2050 * dtype.itemsize
        layer += 1
    name = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
    save_file(tensors, folder / name, metadata={"format": "pt"})
    weight_map |= dict.fromkeys(tensors, name)
index = {"metadata": {"total_size": num_bytes}, "weight_map": weight_map}
(folder / "model.safetensors.index.json").write_text(json.dumps(index))
(folder / "config.json").write_text("{}")
"""

DENOISE = """
import sys, time
from pathlib import Path
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.workers import Streaming
seen, size, first = 0, int(sys.argv[4]), []
def count(num_bytes):  # the first pass sees all but the normalisation layers, less than a thousandth
    global seen
    seen += num_bytes
    if seen > 0.998 * size and not first:
        first.append(time.perf_counter())
start, busy = time.perf_counter(), time.process_time()
source, out, streaming = Path(sys.argv[1]), Path(sys.argv[2]), Streaming(on_progress=count)
denoise_checkpoint(source, out, noise_variance=1e-5, groups=sys.argv[3], streaming=streaming)
print(time.perf_counter() - start, first[0] - start, time.process_time() - busy)
"""

DISK = """
import os, sys, time
from pathlib import Path
from threading import Thread
from quietnn.checkpoints.disk import make_file, write_from
from quietnn.files import sync
from quietnn.checkpoints.workers import whole_pages
out, size, chunk = Path(sys.argv[1]), int(sys.argv[2]) // 8, 1 << 21
memory = whole_pages(chunk).random_(256)
def write(path, first):
    for place in range(first * chunk, size - chunk + 1, 2 * chunk):
        write_from(memory[:chunk], path, place)
out.mkdir()
start = time.perf_counter()
for shard in range(8):
    make_file(out / str(shard), b"", size)
    threads = [Thread(target=write, args=(out / str(shard), first)) for first in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    sync(out / str(shard))
print(time.perf_counter() - start)
"""

TRANSMIT = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from quietnn.channels.awgn import AWGN
from quietnn.channels.randomness import standard_normal
from quietnn.checkpoints.transmit import transmit_checkpoint
from quietnn.checkpoints.workers import Streaming
threads, num_values, part = Streaming().writers, int(sys.argv[3]), 1 << 19
def draw(number): standard_normal(part, seed=0, name=str(number))
start = time.perf_counter()
with ThreadPoolExecutor(threads) as pool:
    list(pool.map(draw, range(num_values // 8 // part)))
alone = 8 * (time.perf_counter() - start)
start = time.perf_counter()
transmit_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]), channel=AWGN(wnr_db=10.0), seed=1)
print(time.perf_counter() - start, alone)
"""


def main() -> None:
    """Measure every dtype and print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "float16"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--groups", choices=["whole", "layerwise"], default="whole")
    parser.add_argument("--transmits", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; needs three times the size")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        for dtype in arguments.dtypes:
            measure(Path(name), dtype, arguments)


def measure(folder: Path, dtype: str, arguments: argparse.Namespace) -> None:
    """Time one dtype and print what was found; the first round only warms the cache."""
    source, out = folder / "source", folder / "out"
    child(MAKE, source, dtype, int(arguments.gigabytes * 1e9))
    size = sum(path.stat().st_size for path in source.iterdir())
    rounds = [one_round(source, out, size, arguments.groups) for _ in range(arguments.repeats + 1)][1:]
    print(
        f"{dtype}, {size / 1e9:.2f} GB, {os.cpu_count()} cores, median of {arguments.repeats}, load "
        f"{min(found['load'] for found in rounds):.1f} to {max(found['load'] for found in rounds):.1f}"
    )
    report(rounds)
    for _ in range(arguments.transmits):
        transmit(source, out, size // (4 if dtype == "float32" else 2))
    shutil.rmtree(source)
    quiet(out)


def one_round(source: Path, out: Path, size: int, groups: str) -> dict[str, float]:
    """One copy, one denoising and one bare writing of as many bytes, one after the other."""
    found: dict[str, float] = {"load": os.getloadavg()[0]}
    quiet(out)
    found["copy"], found["copy busy"] = copy(source, out)
    quiet(out)
    printed, found["outside"], found["memory"] = child(DENOISE, source, out, groups, size)
    found["denoise"], found["first pass"], found["busy"] = map(float, printed.split())
    quiet(out)
    printed, _, _ = child(DISK, out, size)
    found["disk"] = float(printed)
    return found


def report(rounds: list[dict[str, float]]) -> None:
    """Print the medians, and every single time behind them; ratios are taken within each round."""

    def median(name: str) -> float:
        return stats.median(found[name] for found in rounds)

    def each(name: str) -> str:
        return ", ".join(f"{found[name]:.2f}" for found in rounds)

    ratio = stats.median(found["denoise"] / found["copy"] for found in rounds)
    memory = max(found["memory"] for found in rounds)
    print(
        f"  cp and fsync    {median('copy'):6.2f} s, {median('copy busy'):.2f} s of processor  (each: {each('copy')})"
    )
    print(f"  disk alone      {median('disk'):6.2f} s  (each: {each('disk')})")
    print(
        f"  denoise         {median('denoise'):6.2f} s, {median('first pass'):.2f} s of it the first pass, "
        f"{median('busy'):.2f} s of processor  (each: {each('denoise')})"
    )
    print(f"                  {median('outside'):6.2f} s with the start of Python and torch")
    print(f"  denoise of cp   {ratio:6.2f} ({verdict(ratio, GOAL_RATIO)})")
    print(f"  peak memory     {memory:6.0f} MB ({verdict(memory, GOAL_MEGABYTES)})")


def transmit(source: Path, out: Path, num_values: int) -> None:
    """Time one transmission against drawing its noise alone, and print both."""
    quiet(out)
    printed, _, megabytes = child(TRANSMIT, source, out, num_values)
    took, alone = map(float, printed.split())
    print(
        f"  transmit        {took:6.2f} s, {took / alone:.2f} of drawing the noise alone on all cores "
        f"({verdict(took / alone, GOAL_TRANSMIT)}), peak {megabytes} MB"
    )


def verdict(value: float, limit: float) -> str:
    """Whether a limit was kept, in words."""
    return f"limit {limit:g}: {'met' if value <= limit else 'missed'}"


def child(program: str, *arguments: object) -> tuple[str, float, int]:
    """Run a program in a fresh process: what it printed, its time, its peak resident memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise SystemExit(f"a run failed with exit code {process.returncode}")
    return printed, time.perf_counter() - start, usage.ru_maxrss // 1024


def copy(source: Path, out: Path) -> tuple[float, float]:
    """The time and the processor time of `cp -r` and of fsync of every file and of the folder."""
    start, before = time.perf_counter(), sum(os.times()[:4])
    subprocess.run(["cp", "-r", str(source), str(out)], check=True)
    for path in (*out.iterdir(), out):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - start, sum(os.times()[:4]) - before


def quiet(out: Path) -> None:
    """Remove the last output and let the disk come to rest."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()


if __name__ == "__main__":
    main()
