"""What calibration over a loader of many images needs: memory, passes and time, beside all images at once.

ResNet20 and random images of CIFAR's size, kept as bytes and normalised batch by batch. Each way runs in a process of
its own; its peak of resident memory is taken above what the process held when it began. At once is measured on fewer
images if told so: its memory grows with their number.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import quietnn
from quietnn.tasks.models.resnet import ThinResNet


class NoiseImages(Dataset[Tensor]):
    """Random bytes, normalised when they are asked for."""

    def __init__(self, num_images: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._bytes = torch.randint(256, (num_images, 3, 32, 32), dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return len(self._bytes)

    def __getitem__(self, position: int) -> Tensor:
        return (self._bytes[position].float() / 255 - 0.5) / 0.25


def peak_megabytes() -> float:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(num_images: int, batch_size: int, *, at_once: bool) -> dict[str, float]:
    """Calibrate once in this process."""
    torch.manual_seed(0)
    network = ThinResNet(3).eval()
    loader = DataLoader(NoiseImages(num_images), batch_size=batch_size)
    quietnn.calibrate(network, next(iter(loader))[:8], noise_variance=1e-3)  # what is loaded on first use
    before, start = peak_megabytes(), time.perf_counter()
    evidence = quietnn.Evidence(loader, batch_size=num_images if at_once else batch_size)
    repaired = quietnn.calibrate(network, evidence, noise_variance=1e-3)
    return {
        "before": before,
        "peak": peak_megabytes() - before,
        "passes": repaired.passes,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--images-at-once", type=int, default=None, help="the same number when not given")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--one", choices=("batches", "at-once"), help="measure in this process and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.images, arguments.batch_size, at_once=arguments.one == "at-once")))
        return
    for way, num_images in (("batches", arguments.images), ("at-once", arguments.images_at_once or arguments.images)):
        options = ["--one", way, "--images", str(num_images), "--batch-size", str(arguments.batch_size)]
        done = subprocess.run([sys.executable, __file__, *options], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{way:8s} {num_images} images: failed, {done.stderr[-200:] or 'killed'}")
            continue
        found = json.loads(done.stdout)
        print(
            f"{way:8s} {num_images:6d} images: {found['peak']:6.0f} MB above {found['before']:.0f} MB, "
            f"{found['passes']:.1f} passes, {found['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
