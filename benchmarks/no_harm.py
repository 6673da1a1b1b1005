"""Does a repair without labels ever do harm? Small networks of every kind, judged against the received network.

    python benchmarks/no_harm.py [--networks vit-pre-norm,bert] [--num-draws 10] [--report-only]

One JSON line for each network, WNR and repair goes to results/no-harm/records.jsonl; what is there is not computed
again. Differences are taken draw by draw and example by example on the same noise; their standard error covers both.
"""

import argparse
import copy
import json
import math
from pathlib import Path

import torch
from no_harm_networks import KINDS, data, outputs, trained
from torch import Tensor, nn

import quietnn
from quietnn.batches import Inputs, take
from quietnn.repairs.kinds import has_kernels, has_stored_statistics, normalises_inputs

FIRST_SEED = 3000
NUM_INPUTS, NUM_TEST = 100, 600
WNRS = {"digits": (2.0, 4.0, 6.0, 8.0, 10.0, 14.0), "sst2": (-4.0, -2.0, 0.0, 2.0, 4.0, 8.0)}
CHANCE = {"digits": 0.1, "sst2": 0.5}
_HEADING = """# Repairs without labels against the received network

Points of accuracy gained, with half of a 95 % interval over draws and test examples; `!` marks a loss beyond it.
`python benchmarks/no_harm.py` makes what is missing. `balanced` is `energy` with a centred head, for those who say that
classes are balanced. With nothing, `auto` returns the received network, which gains and loses nothing."""
RESULTS = Path(__file__).parents[1] / "results" / "no-harm"


def repairs(received: nn.Module, noise: float, inputs: Inputs) -> dict[str, nn.Module]:
    """What `auto` may return without labels, and what it returned before."""
    names = {"mmse": "mmse"}
    if normalises_inputs(received):
        names |= {"branches": "branches", "energy": "energy", "balanced": "energy_balanced"}
    if has_stored_statistics(received):
        names["calibrated"] = "calibrated"
    if has_kernels(received):
        names["structured"] = "structured"
    return {
        name: quietnn.repair(received, inputs, method=method, noise_variance=noise).model
        for name, method in names.items()
    }


def cell(name: str, wnr_db: float, *, seeds: range, folder: Path) -> list[dict[str, object]]:
    """One record for each repair of a network at a WNR."""
    model, kind = trained(name, folder=folder), KINDS[name]
    test, inputs = data(kind.data, "test"), take(data(kind.data, "tuning").inputs, slice(NUM_INPUTS))
    chosen = torch.arange(len(test.labels))[:NUM_TEST]

    def right(network: nn.Module) -> Tensor:
        return (outputs(network, take(test.inputs, chosen)).argmax(1) == test.labels[chosen]).double()

    received_right: list[Tensor] = []
    rights: dict[str, list[Tensor]] = {}
    for seed in seeds:
        observation = quietnn.transmit(copy.deepcopy(model), wnr_db=wnr_db, seed=seed)
        received, noise = observation.received, observation.noise_variance
        received_right.append(right(received))
        for method, repaired in repairs(received, noise, inputs).items():
            rights.setdefault(method, []).append(right(repaired))
    by_auto = {"nothing": quietnn.auto(received, noise_variance=noise).name}
    by_auto["inputs"] = quietnn.auto(received, inputs, noise_variance=noise).name
    base = torch.stack(received_right)
    common = {
        "experiment": "no_harm",
        "network": name,
        "wnr_db": wnr_db,
        "first_seed": seeds.start,
        "num_draws": len(seeds),
        "num_test": len(chosen),
        "clean": float(right(model).mean()),
        "received": float(base.mean()),
        "auto_nothing": by_auto["nothing"],
        "auto_inputs": by_auto["inputs"],
    }
    return [{**common, "method": method, **difference(torch.stack(made) - base)} for method, made in rights.items()]


def difference(differences: Tensor) -> dict[str, object]:
    """Mean of (draws, examples) and its standard error over draws and over examples, both taken to be sampled.

    >>> difference(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))["mean"]
    0.25
    """
    by_draw, by_example = differences.mean(1), differences.mean(0)
    errors = [float(part.std()) / math.sqrt(len(part)) for part in (by_draw, by_example)]
    return {"mean": float(differences.mean()), "error": math.hypot(*errors), "by_draw": by_draw.tolist()}


def read(path: Path) -> list[dict[str, object]]:
    """The records so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(records: list[dict[str, object]], methods: tuple[str, ...]) -> str:
    """Received accuracy and points gained by each method, with half of a 95 % interval; `!` marks a loss beyond it."""
    rows = ["| network | WNR | received | " + " | ".join(methods) + " |", "|---" * (3 + len(methods)) + "|"]
    cells: dict[tuple[str, float], dict[str, dict]] = {}
    for one in records:
        cells.setdefault((one["network"], one["wnr_db"]), {})[one["method"]] = one
    for (network, wnr_db), found in sorted(cells.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0][1])):
        received = 100 * next(iter(found.values()))["received"]
        shown = [_points(found[method]) if method in found else "" for method in methods]
        rows.append(f"| {network} | {wnr_db:g} dB | {received:.1f} | " + " | ".join(shown) + " |")
    return "\n".join(rows)


def _points(record: dict) -> str:
    mean, half = 100 * record["mean"], 196 * record["error"]
    return f"{mean:+.1f} ± {half:.1f}" + (" !" if mean < -half else "")


def worst(records: list[dict[str, object]], methods: tuple[str, ...]) -> str:
    """For each method: how often it lost and gained by more than its error, above chance, and the extremes."""
    lines = []
    for method in methods:
        found = [
            one
            for one in records
            if one["method"] == method and one["received"] > CHANCE[KINDS[one["network"]].data] + 0.05
        ]
        if not found:
            continue
        lost = sum(one["mean"] < -1.96 * one["error"] for one in found)
        gained = sum(one["mean"] > 1.96 * one["error"] for one in found)
        means = [100 * one["mean"] for one in found]
        lines.append(
            f"- `{method}`: {len(found)} cells, {lost} lost and {gained} gained by more than 1.96 standard errors; "
            f"mean {sum(means) / len(means):+.2f}, from {min(means):+.1f} to {max(means):+.1f} points"
        )
    return "\n".join(lines)


def asked(what: str | None, results: Path, *, num_draws: int, first_seed: int) -> tuple[argparse.Namespace, range]:
    """The options of a benchmark of small networks, and its seeds; no networks if only a report is asked for."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--networks", default=",".join(KINDS))
    parser.add_argument("--num-draws", type=int, default=num_draws)
    parser.add_argument("--first-seed", type=int, default=first_seed)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "quietnn" / "no-harm")
    parser.add_argument("--records", type=Path, default=results / "records.jsonl")
    parser.add_argument("--report-only", action="store_true")
    options = parser.parse_args()
    options.networks = [] if options.report_only else options.networks.split(",")
    options.records.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    return options, range(options.first_seed, options.first_seed + options.num_draws)


def main() -> None:
    """Compute what is missing and print the tables."""
    options, seeds = asked(__doc__, RESULTS, num_draws=10, first_seed=FIRST_SEED)
    for name in options.networks:
        for wnr_db in WNRS[KINDS[name].data]:
            if any((one["network"], one["wnr_db"]) == (name, wnr_db) for one in read(options.records)):
                continue
            made = cell(name, wnr_db, seeds=seeds, folder=options.folder)
            with options.records.open("a") as file:
                file.write("".join(json.dumps(one) + "\n" for one in made))
            print(table(made, tuple(str(one["method"]) for one in made)).splitlines()[-1], flush=True)
    methods = ("mmse", "branches", "energy", "balanced", "calibrated", "structured")
    found = read(options.records)
    summary = "\n\n".join([_HEADING, worst(found, methods), table(found, methods)]) + "\n"
    (options.records.parent / "summary.md").write_text(summary)
    print(summary)


if __name__ == "__main__":
    main()
