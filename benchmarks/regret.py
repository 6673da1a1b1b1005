"""How much is lost by letting `auto` choose? Small networks of every kind, 100 labels, against every other repair.

    python benchmarks/regret.py [--networks vit-pre-norm,bert] [--num-draws 5] [--report-only]

One JSON line for each network, WNR and noise draw goes to results/regret/records.jsonl; what is there is not computed
again. The best repair is found on one half of the test examples; it and `auto` are compared on the other half, both
ways round. So luck on the test examples makes no repair look better than it is.
"""

import json
import math
from pathlib import Path

import torch
from no_harm import asked, read
from no_harm_networks import KINDS, data, outputs, trained
from torch import Tensor, nn

import quietnn
from quietnn.batches import take
from quietnn.observation import Observation
from quietnn.reports.figures import render

FIRST_SEED = 6000
NUM_LABELS = 100
WNRS = {"digits": (0.0, 4.0, 8.0, 14.0), "sst2": (-4.0, 0.0, 4.0)}
RIVALS = (
    "ml", "mmse", "mmse_layerwise", "calibrated", "structured", "branches", "directions", "energy", "mmse_pb",
    "mmse_pb_gradient", "finetuned", "posterior",
)  # fmt: skip
RESULTS = Path(__file__).parents[1] / "results" / "regret"
_HEADING = """# What `auto` loses by choosing

Points of test accuracy by which the best of {rivals} other repairs is above `auto`, with 100 labels. The best is found
on one half of the test examples, and both are compared on the other half. Negative: `auto` is better there.
`python benchmarks/regret.py` makes what is missing.
"""


def record(name: str, model: nn.Module, wnr_db: float, seed: int) -> dict[str, object]:
    """Accuracy of every repair on both halves of the test examples, and what `auto` said."""
    kind = KINDS[name]
    test, tuning = data(kind.data, "test"), data(kind.data, "tuning")
    order = torch.randperm(len(tuning.labels), generator=torch.Generator().manual_seed(seed))[:NUM_LABELS]
    examples = take(tuning.inputs, order), tuning.labels[order]
    halves = torch.randperm(len(test.labels), generator=torch.Generator().manual_seed(0)).tensor_split(2)

    def accuracies(network: nn.Module) -> list[float]:
        right: Tensor = (outputs(network, test.inputs).argmax(1) == test.labels).double()
        return [float(right[half].mean()) for half in halves]

    observation = quietnn.transmit(model, wnr_db=wnr_db, seed=seed)
    found = {row: accuracies(_made(row, observation, examples, seed)) for row in RIVALS if _applies(row, observation)}
    chosen = quietnn.repair(observation, *examples, seed=seed)
    return {
        "experiment": "regret",
        "network": name,
        "wnr_db": wnr_db,
        "seed": seed,
        "num_test": len(test.labels),
        "accuracies": found,
        "auto": accuracies(chosen.model),
        "chosen": chosen.name,
        "passes": chosen.passes,
        "accuracy_at_least": chosen.details["accuracy_at_least"],
        "version": quietnn.__version__,
    }


def _applies(row: str, observation: Observation) -> bool:
    return quietnn.REPAIRS[row].applies(observation)


def _made(row: str, observation: Observation, examples: tuple[object, Tensor], seed: int) -> nn.Module:
    return quietnn.repair(observation, *examples, method=row, seed=seed).model


def regret(one: dict) -> float:
    """Accuracy of the best repair less that of `auto`, each on the half that did not find the best.

    >>> regret({"accuracies": {"a": [0.9, 0.7], "b": [0.8, 0.8]}, "auto": [0.8, 0.8]})
    -0.05
    """
    differences = []
    for half in (0, 1):
        best = max(one["accuracies"].values(), key=lambda found, half=half: found[half])
        differences.append(best[1 - half] - one["auto"][1 - half])
    return round(sum(differences) / 2, 6)


def summary(records: list[dict]) -> str:
    """A sentence on all draws, and a row for each network."""
    lost = torch.tensor([regret(one) for one in records])
    held = [one["accuracy_at_least"] <= sum(one["auto"]) / 2 for one in records]
    within, passes = int((lost <= 0.01).sum()), [one["passes"] for one in records]
    lines = [
        _HEADING.format(rivals=len(RIVALS)),
        f"- `auto` is within one point of the best in {within} of {len(lost)} draws ({within / len(lost):.0%}). Its "
        f"mean loss is {100 * float(lost.mean()):.2f} ± {100 * float(lost.std()) / math.sqrt(len(lost)):.2f} points "
        f"(standard error), the largest {100 * float(lost.max()):.1f}.",
        f"- It takes {sum(passes) / len(passes):.0f} passes on average, {max(passes):.0f} at most.",
        f"- Its lower limit of the accuracy holds in {sum(held)} of {len(held)} draws ({sum(held) / len(held):.1%}).",
        "",
        "| network | draws | mean loss | largest loss | within one point |\n|---|---:|---:|---:|---:|",
    ]
    for name in KINDS:
        own = [100 * regret(one) for one in records if one["network"] == name]
        if own:
            near = sum(one <= 1 for one in own)
            lines.append(f"| {name} | {len(own)} | {sum(own) / len(own):.2f} | {max(own):.1f} | {near} |")
    return "\n".join(lines) + "\n"


def figure(records: list[dict], path: Path) -> None:
    """The share of draws that lose no more than so many points."""
    import matplotlib.pyplot as plt

    lost = sorted(100 * regret(one) for one in records)
    shares = [100 * (place + 1) / len(lost) for place in range(len(lost))]
    shown, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.step(lost, shares, where="post", color="#332288")
    axes.axvline(1.0, color="0.6", linestyle=":")
    axes.axhline(90.0, color="0.6", linestyle=":")
    axes.set_xlabel("points of accuracy below the best repair")
    axes.set_ylabel("share of draws in per cent")
    axes.set_ylim(0, 101)
    path.write_bytes(render(shown, "svg"))
    plt.close(shown)


def main() -> None:
    """Compute what is missing and write the summary."""
    options, seeds = asked(__doc__, RESULTS, num_draws=5, first_seed=FIRST_SEED)
    for name in options.networks:
        model = trained(name, folder=options.folder)
        for wnr_db in WNRS[KINDS[name].data]:
            known = {(one["network"], one["wnr_db"], one["seed"]) for one in read(options.records)}
            for seed in (seed for seed in seeds if (name, wnr_db, seed) not in known):
                made = record(name, model, wnr_db, seed)
                with options.records.open("a") as file:
                    file.write(json.dumps(made) + "\n")
                print(
                    f"{name} {wnr_db:g} dB, draw {seed}: {made['chosen']}, {100 * regret(made):+.1f} points", flush=True
                )
    found = read(options.records)
    text = summary(found)
    (options.records.parent / "summary.md").write_text(text)
    figure(found, options.records.parent / "regret.svg")
    print(text)


if __name__ == "__main__":
    main()
