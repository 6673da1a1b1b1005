"""How near denoising in memory comes to copying memory: one run, side by side.

A state dict of float32 tensors shaped like a large network's is denoised into tensors that exist already, and
copied into the same tensors. Both read and write every weight once, so the copy's bandwidth is the most there is.
Statistics are a pass of their own and are timed apart.
"""

import argparse
import statistics as stats
import time
from collections.abc import Callable

import torch
from torch import Tensor

from quietnn.repairs.affine import Temperatures
from quietnn.repairs.grouped import GroupedWeights

GOAL = 0.85


def transformer_like(num_bytes: int) -> dict[str, Tensor]:
    """Layers of matrices and short biases, until there are this many bytes of float32."""
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, Tensor] = {}
    left = num_bytes // 4
    while left > 0:
        rows = min(1024, max(left // 1024, 1))
        layer = f"layers.{len(weights) // 2}"
        weights[f"{layer}.weight"] = torch.randn(rows, 1024, generator=generator) * 0.02
        weights[f"{layer}.bias"] = torch.randn(rows, generator=generator) * 0.02
        left -= rows * 1025
    return weights


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    """Print the bandwidth of both, and the median of their ratios, round by round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    received = transformer_like(int(arguments.gigabytes * 1e9))
    size = sum(tensor.nbytes for tensor in received.values())
    out = {name: torch.empty_like(tensor).fill_(0.0) for name, tensor in received.items()}  # pages touched
    whole = GroupedWeights.of(received, noise_variance=1e-4)
    layers = GroupedWeights.of(received, noise_variance=1e-4, groups="layerwise")
    by_whole, by_layers = (by_group.denoisers(Temperatures(0.9, 0.1)) for by_group in (whole, layers))

    def copy() -> None:
        for name, tensor in received.items():
            out[name].copy_(tensor)

    actions: dict[str, Callable[[], object]] = {
        "copy": copy,
        "denoise, whole": lambda: whole.estimate(by_whole, out=out),
        "denoise, layerwise": lambda: layers.estimate(by_layers, out=out),
    }
    times: dict[str, list[float]] = {name: [] for name in actions}
    for repeat in range(arguments.repeats + 1):  # in turn, so that a busy machine is busy for all of them
        for name, action in actions.items():
            took = seconds(action)
            if repeat:
                times[name].append(took)

    print(
        f"{size / 1e9:.2f} GB in {len(received)} tensors, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, median of {arguments.repeats}"
    )
    for name, took in times.items():
        median = stats.median(took)
        print(f"{name:20s} {median:.4f} s  {2 * size / median / 1e9:6.2f} GB/s read and written", end="")
        ratio = stats.median(copied / own for copied, own in zip(times["copy"], took, strict=True))
        verdict = "met" if ratio >= GOAL else "missed"
        print("" if name == "copy" else f"   {ratio:6.1%} of the copy (goal {GOAL:.0%}: {verdict})")
    took = stats.median(seconds(lambda: GroupedWeights.of(received, noise_variance=1e-4)) for _ in range(3))
    print(f"{'checks, statistics':20s} {took:.4f} s  {size / took / 1e9:6.2f} GB/s read")


if __name__ == "__main__":
    main()
