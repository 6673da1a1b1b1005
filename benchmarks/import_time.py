"""What `import quietnn` adds to `import torch`, in fresh processes.

The package imports its public names when they are first used, so the bare import is next to nothing. The goal is held
against the honest number: the import and every public name.
"""

import argparse
import os
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
bare = time.perf_counter()
from quietnn import *
print(middle - start, bare - middle, time.perf_counter() - middle)
"""


def main() -> None:
    """Print both times and whether the second meets the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    # An installed package is compiled once; a shell that forbids bytecode would compile it in every process.
    shell = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=shell
        ).stdout.split()
        for _ in range(arguments.repeats + 1)
    ][1:]
    torch_alone, bare, added = (stats.median(float(run[i]) for run in runs) for i in range(3))
    verdict = "met" if added <= GOAL else "missed"
    print(f"import torch               {torch_alone:.3f} s   (median of {arguments.repeats})")
    print(f"import quietnn adds        {bare:.3f} s")
    print(f"with every public name     {added:.3f} s   (goal {GOAL} s: {verdict})")


if __name__ == "__main__":
    main()
