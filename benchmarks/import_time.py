"""What `import quietnn` adds to `import torch`, in fresh processes, in turn."""

import argparse
import statistics as stats
import subprocess
import sys

GOAL = 0.15

PROGRAM = """
import time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import quietnn
print(middle - start, time.perf_counter() - middle)
"""


def main() -> None:
    """Print both times and whether the second meets the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(arguments.repeats + 1)
    ][1:]
    torch_alone, added = (stats.median(float(run[i]) for run in runs) for i in (0, 1))
    verdict = "met" if added <= GOAL else "missed"
    print(f"import torch         {torch_alone:.3f} s   (median of {arguments.repeats})")
    print(f"import quietnn adds  {added:.3f} s   (goal {GOAL} s: {verdict})")


if __name__ == "__main__":
    main()
