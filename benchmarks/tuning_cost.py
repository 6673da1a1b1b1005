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
from collections.abc import Callable
from dataclasses import dataclass

import torch

from quietnn.channels.transmit import transmit
from quietnn.experiments.methods import METHODS, Outcome, Receiver, Search
from quietnn.repairs.denoise import denoise
from quietnn.repairs.temperatures.grid import AUTHORS_GRIDS
from quietnn.repairs.temperatures.racing import race
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


def authors_grid_raced(receiver: Receiver) -> Outcome:
    """The authors' points, most of them seen by four examples only."""
    judge = receiver.judge
    found = race(judge.for_some(receiver.whole), AUTHORS_GRIDS["resnet"], judge.num_examples, seed=receiver.seed)
    model = denoise(receiver.model, noise_variance=receiver.noise_variance, temperatures=found.temperatures)
    return Outcome(model, math.ceil(found.num_passes), found)


def rows(methods: list[str]) -> dict[str, tuple[Search, Callable[[Receiver], Outcome]]]:
    """Every row of the table: how temperatures are searched, and what is done with them."""
    mmse_pb = METHODS["mmse_pb"]
    searches = {
        REFERENCE: (Search("resnet"), mmse_pb),
        "authors' grid, raced": (Search(), authors_grid_raced),
        "even grid": (Search("even-grid"), mmse_pb),
        "coarse to fine": (Search(), mmse_pb),
        "racing": (Search("racing"), mmse_pb),
    }
    return {**searches, **{name: (Search("racing"), METHODS[name]) for name in methods}}


def measure(task: Task, wnr_db: float, draw: int, arguments: argparse.Namespace) -> dict[str, Measured]:
    """All rows on one noisy network."""
    observation = transmit(task.load_model(), wnr_db=wnr_db, seed=draw)
    tuning = task.tuning_examples(arguments.num_tuning_examples, draw)
    test = task.test_examples(arguments.num_test_examples)
    measured = {}
    for name, (search, method) in rows(arguments.methods).items():
        receiver = Receiver(
            observation.received,
            observation.noise_variance,
            tuning,
            task.evaluate,
            search=search,
            augment=task.augment,
            seed=draw,
        )
        started = time.perf_counter()
        outcome = method(receiver)
        seconds = time.perf_counter() - started
        cost = outcome.search.num_passes if outcome.search and method is METHODS["mmse_pb"] else outcome.num_passes
        measured[name] = Measured(cost, seconds, task.evaluate(outcome.model, test).accuracy)
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
