"""What the blocks of a grown network are worth: `python benchmarks/block_costs.py --num-examples 1000`.

The worth of a block is the accuracy lost when its residual branch is set to zero: a grown network whose added blocks do
nothing would be the shallow one under another name. One JSON line for the network, one for all added blocks together,
one for each block.
"""

import argparse
import copy
import json
from collections.abc import Collection

import torch
from safetensors import safe_open
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.tasks.base import Examples, Task
from quietnn.tasks.cifar10_task import weights_path
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.models.resnet import BasicBlock
from quietnn.tasks.registry import load_task


def without_blocks(model: nn.Module, names: Collection[str]) -> nn.Module:
    """A copy of the network in which the residual branches of these blocks, such as `layer3.4`, give zero.

    Raises:
        InvalidConfig: if a name is not that of a residual block.
    """
    blocks = residual_blocks(model)
    unknown = [name for name in names if name not in blocks]
    if unknown:
        raise InvalidConfig(f"{unknown[0]!r} is not a residual block of this network; there are {', '.join(blocks)}")
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for name in names:
            block = copied.get_submodule(name)
            assert isinstance(block, BasicBlock)
            for parameter in (block.bn2.weight, block.bn2.bias):
                parameter.zero_()
    return copied


def residual_blocks(model: nn.Module) -> tuple[str, ...]:
    """The names of a network's residual blocks, in order."""
    return tuple(name for name, module in model.named_modules() if isinstance(module, BasicBlock))


def block_costs(task: Task, model: nn.Module, examples: Examples, added: Collection[str]) -> dict[str, float]:
    """The accuracy lost without each block alone and, as `"added"`, without all that the network was grown by."""
    parts = {"added": tuple(added), **{name: (name,) for name in residual_blocks(model)}}

    def accuracy(network: nn.Module) -> float:
        return task.evaluate(network, examples).accuracy or 0.0

    whole = accuracy(model)
    return {name: whole - accuracy(without_blocks(model, blocks)) for name, blocks in parts.items()}


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
