"""What finding good weights costs, and what it brings: every search and method on the same noise, in one run.

Cost is counted in forward passes over the tuning examples (a backward pass counts two) and in seconds of one thread.
Test accuracy is the mean over noise draws with its standard error; the last column is the difference from the authors'
grid on the same draws, with the standard error of the difference. Goals: racing at a tenth of the authors' 276 points
or less, and not worse than them by more than a standard error; calibration in one pass; gradient and posterior in 150.
"""

import argparse
import math
import statistics
import time
from dataclasses import dataclass, replace

import torch

from quietnn.channels.transmit import transmit
from quietnn.experiments.methods import Draw, run_method
from quietnn.repairs.temperatures.searches import AUTHORS_GRIDS, product_grid
from quietnn.repairs.temperatures.tune import Search
from quietnn.tasks.base import Task
from quietnn.tasks.registry import load_task

REFERENCE = "authors' grid"
GOALS = {"racing": 27.6, "calibrated": 1, "mmse_pb_gradient": 150, "posterior": 150}
"""The most passes each may cost."""


@dataclass(frozen=True)
class Measured:
    """What one method cost and reached on one draw."""

    num_passes: float
    seconds: float
    accuracy: float


def rows(methods: list[str]) -> dict[str, tuple[Search, str]]:
    """Every row of the table: how temperatures are searched, and the method that they are for."""
    searches = {
        REFERENCE: Search("resnet"),
        "authors' grid, raced": Search("racing", grid=product_grid(*AUTHORS_GRIDS["resnet"])),
        "even grid": Search("even-grid"),
        "coarse to fine": Search("coarse-to-fine"),
        "racing": Search("racing"),
    }
    by_search = {name: (search, "mmse_pb") for name, search in searches.items()}
    return by_search | {name: (Search("racing"), name) for name in methods}


def measure(task: Task, wnr_db: float, draw: int, arguments: argparse.Namespace) -> dict[str, Measured]:
    """All rows on one noisy network."""
    observation = transmit(task.load_model(), wnr_db=wnr_db, seed=draw)
    tuning = task.evidence(task.tuning_examples(arguments.num_tuning_examples, draw))
    test = task.test_examples(arguments.num_test_examples)
    measured = {}
    for name, (search, method) in rows(arguments.methods).items():
        alone = replace(observation)  # which remembers no other row's search
        started = time.perf_counter()
        made = run_method(method, Draw(alone, tuning, search=search, seed=draw))
        seconds = time.perf_counter() - started
        cost = made.details["search"].num_passes if method == "mmse_pb" else made.passes
        measured[name] = Measured(cost, seconds, task.evaluate(made.model, test).accuracy)
    return measured


def with_error(values: list[float]) -> str:
    """Mean and standard error, in points."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{100 * statistics.fmean(values):6.1f} ± {100 * error:.1f}"


def main() -> None:
    """Print one table for each WNR."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="digits", help="digits, or with data cifar10/resnet20")
    parser.add_argument("--wnr-db", type=float, nargs="+", default=[4.0, 6.0])
    parser.add_argument("--num-draws", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0, help="of the first draw")
    parser.add_argument("--num-tuning-examples", type=int, default=100)
    parser.add_argument("--num-test-examples", type=int, default=None)
    parser.add_argument("--methods", nargs="*", default=["calibrated", "mmse_pb_gradient", "posterior"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = load_task(arguments.task)
    for wnr_db in arguments.wnr_db:
        draws = range(arguments.seed, arguments.seed + arguments.num_draws)
        measured = [measure(task, wnr_db, draw, arguments) for draw in draws]
        print(f"\n{task.name} at {wnr_db:g} dB, draws {draws.start} to {draws[-1]}, one thread")
        print(f"{'':22s} {'passes':>7s} {'seconds':>8s} {'accuracy':>12s}   against the authors' grid")
        for name in measured[0]:
            runs = [one[name] for one in measured]
            passes, seconds = (statistics.fmean(getattr(run, key) for run in runs) for key in ("num_passes", "seconds"))
            gain = [one[name].accuracy - one[REFERENCE].accuracy for one in measured]
            verdict = (
                f"   at most {GOALS[name]:g}: {'met' if passes <= GOALS[name] else 'missed'}" if name in GOALS else ""
            )
            accuracies = with_error([run.accuracy for run in runs])
            print(
                f"{name:22s} {passes:7.1f} {seconds:8.2f} {accuracies:>12s}   {with_error(gain)}{verdict}", flush=True
            )


if __name__ == "__main__":
    main()
