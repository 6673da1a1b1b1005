"""What is each part of the posterior worth? The fit without one part at a time, on the same noise and examples.

    python benchmarks/ablation.py [--tasks cifar10/resnet20] [--wnr-db 0 2] [--num-draws 5] [--report-only]

One JSON line for each task, WNR, noise draw and variant goes to results/ablation/records.jsonl; what is there is not
computed again. Seeds and test images are ones that no constant was chosen on. Differences are paired by draw.

- *fit*: the posterior's fit as it is returned where its guard lets it pass; all others lack one thing that it has.
- *no start*: steps begin at the received weights, with statistics between those stored and those of the examples.
- *no noise units*: every weight of the network has the same spread, the root mean square of all.
- *no prior*: nothing but the examples holds the weights.
- *no anchored statistics*: from the same start, statistics are blended with those of the examples.
- *no augmentation*: examples as they are.
- *half the steps*: 16 in place of 32.
- *guarded*: the posterior as a user gets it.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from no_harm import read
from torch import nn

import quietnn
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import Start, prepare, start_at
from quietnn.repairs.fitting.whitened import DEFAULT, PosteriorSettings, Whitened, in_mini_batches, maximise
from quietnn.repairs.grouped import grouped
from quietnn.repairs.posterior import chosen_start

FIRST_SEED, FIRST_TEST_IMAGE, NUM_TEST, NUM_LABELS = 4000, 1000, 1000, 100
TASKS = {"cifar10/resnet20": (0.0, 2.0, 4.0), "cifar10/shufflenetv2-x0_5": (0.0, 2.0)}
RESULTS = Path(__file__).parents[1] / "results" / "ablation"
_HEADING = f"""# What each part of the posterior is worth

Test accuracy in per cent with {NUM_LABELS} labels on {NUM_TEST:,} test images, mean and standard error over draws.
Behind the column *fit*: points gained over it in the same draws, negative where the fit loses without that part.
`python benchmarks/ablation.py` makes what is missing and says what the variants are.
"""


def fitted(
    observation: Observation,
    evidence: Evidence,
    seed: int,
    *,
    settings: PosteriorSettings = DEFAULT,
    begin: Callable[[Scratch], Start] | None = None,
    about: Callable[[Whitened], Whitened] = lambda whitened: whitened,
) -> nn.Module:
    """The posterior's fit on all examples without its guard, with another start or spread if asked."""
    scratch = Scratch(observation, evidence, blended=True)
    start = begin(scratch) if begin else chosen_start(scratch, observation, evidence, seed=seed)
    whitened = about(prepare(scratch, start, grouped(observation, "layerwise")))
    steps = in_mini_batches(settings, scratch.num_batches)
    fit = maximise(scratch, whitened, torch.arange(len(evidence)), settings=steps, seed=seed)
    return scratch.finish(start.network, fit.weights)


def alike(whitened: Whitened) -> Whitened:
    """One spread for all weights."""
    squares = counts = 0.0
    for name, spread in whitened.spread.items():
        own = torch.as_tensor(spread).expand_as(whitened.centre[name]).double()
        squares, counts = squares + float(own.square().sum()), counts + own.numel()
    return Whitened(whitened.centre, dict.fromkeys(whitened.spread, math.sqrt(squares / counts)))


def variants(observation: Observation, evidence: Evidence, seed: int) -> dict[str, Callable[[], nn.Module]]:
    """Every variant by name, to be made when called."""

    def unanchored(scratch: Scratch) -> Start:
        return replace(chosen_start(scratch, observation, evidence, seed=seed), is_anchor=False)

    def fit(known: Evidence = evidence, **options: object) -> Callable[[], nn.Module]:
        return lambda: fitted(observation, known, seed, **options)  # type: ignore[arg-type]

    return {
        "fit": fit(),
        "no start": fit(begin=lambda scratch: start_at(observation.weights, observation, scratch)),
        "no noise units": fit(about=alike),
        "no prior": fit(settings=replace(DEFAULT, prior=0.0)),
        "no anchored statistics": fit(begin=unanchored),
        "no augmentation": fit(replace(evidence, augment=None)),
        "half the steps": fit(settings=replace(DEFAULT, num_steps=DEFAULT.num_steps // 2)),
        "guarded": lambda: quietnn.posterior(observation, evidence, seed=seed).model,
    }


def summary(records: list[dict]) -> str:
    """A row for each task and WNR, a column for each variant."""
    names = list(dict.fromkeys(one["variant"] for one in records))
    rows = ["| network | WNR | draws | " + " | ".join(names) + " |", "|---|---|---:" + "|---:" * len(names) + "|"]
    for task, wnr_db in dict.fromkeys((one["task"], one["wnr_db"]) for one in records):
        own = [one for one in records if (one["task"], one["wnr_db"]) == (task, wnr_db)]
        found = {name: {one["seed"]: one["accuracy"] for one in own if one["variant"] == name} for name in names}
        base = found["fit"]
        cells = [_with_error(list(base.values()))]
        for name in names[1:]:
            cells.append(
                _with_error([found[name][seed] - base[seed] for seed in base if seed in found[name]], sign="+")
            )
        rows.append(f"| {task.split('/')[1]} | {wnr_db:g} dB | {len(base)} | " + " | ".join(cells) + " |")
    return _HEADING + "\n" + "\n".join(rows) + "\n"


def _with_error(values: list[float], sign: str = "") -> str:
    """Mean and standard error in per cent.

    >>> _with_error([0.5, 0.7]), _with_error([0.01, 0.03], sign="+"), _with_error([])
    ('60.0 ± 10.0', '+2.0 ± 1.0', '–')
    """
    if not values:
        return "–"
    found = 100 * torch.tensor(values, dtype=torch.float64)
    error = f" ± {float(found.std()) / math.sqrt(len(found)):.1f}" if len(found) > 1 else ""
    return f"{float(found.mean()):{sign}.1f}{error}"


def main() -> None:
    """Compute what is missing and write the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--wnr-db", nargs="+", type=float, help="default: those of the task")
    parser.add_argument("--num-draws", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--records", type=Path, default=RESULTS / "records.jsonl")
    parser.add_argument("--report-only", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.records.parent.mkdir(parents=True, exist_ok=True)
    for name in [] if options.report_only else options.tasks:
        task = quietnn.load_task(name)
        test = task.test_examples(NUM_TEST, FIRST_TEST_IMAGE)
        for wnr_db in options.wnr_db or TASKS[name]:
            for seed in range(FIRST_SEED, FIRST_SEED + options.num_draws):
                observation = quietnn.transmit(task.load_model(), wnr_db=wnr_db, seed=seed)
                evidence = task.evidence(task.tuning_examples(NUM_LABELS, seed))
                known = {(one["task"], one["wnr_db"], one["seed"], one["variant"]) for one in read(options.records)}
                for variant, make in variants(observation, evidence, seed).items():
                    if (name, wnr_db, seed, variant) in known:
                        continue
                    one = {
                        "experiment": "ablation",
                        "task": name,
                        "wnr_db": wnr_db,
                        "seed": seed,
                        "variant": variant,
                        "accuracy": task.evaluate(make(), test).accuracy,
                        "num_test_examples": len(test),
                        "version": quietnn.__version__,
                    }
                    with options.records.open("a") as file:
                        file.write(json.dumps(one) + "\n")
                    print(f"{name} {wnr_db:g} dB, draw {seed}, {variant}: {100 * one['accuracy']:.1f} %", flush=True)
    text = summary(read(options.records))
    (options.records.parent / "summary.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
