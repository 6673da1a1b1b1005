"""What the blocks of a grown network are worth: `python benchmarks/block_costs.py --num-examples 1000`.

One JSON line for the network, one for all added blocks together, one for each block.
"""

import argparse
import json

from safetensors import safe_open

from quietnn.experiments.block_costs import block_costs
from quietnn.tasks.cifar10_task import weights_path
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.registry import load_task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="resnet34")
    parser.add_argument("--num-examples", type=int, default=1000)
    arguments = parser.parse_args()
    with safe_open(weights_path(arguments.network, resolve_data_dir(None)), framework="pt") as file:
        added = (file.metadata() or {})["added_blocks"].split(",")
    task = load_task(f"cifar10/{arguments.network}")
    model, examples = task.load_model(), task.test_examples(arguments.num_examples)
    whole = {"network": arguments.network, "accuracy": task.evaluate(model, task.test_examples(None)).accuracy}
    print(json.dumps(whole), flush=True)
    for block, cost in block_costs(task, model, examples, added).items():
        print(json.dumps({"without": block, "is_added": block in (*added, "added"), "cost": cost}), flush=True)


if __name__ == "__main__":
    main()
