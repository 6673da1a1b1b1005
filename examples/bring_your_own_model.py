"""Your own network as a quietnn task: ten lines, then noise, then the repairs.

python examples/bring_your_own_model.py
"""

from copy import deepcopy

import torch
from torch import nn

import quietnn
from quietnn.tasks.base import Examples, Task, sample


def make_rings(num_points: int, seed: int) -> Examples:
    """Points of the plane, to be told apart by their distance from the origin."""
    points = 2.0 * torch.randn(num_points, 2, generator=torch.Generator().manual_seed(seed))
    return Examples(inputs=points, labels=points.norm(dim=1).mul(0.8).long().clamp(max=3))


def train(examples: Examples) -> nn.Module:
    """Any module that maps inputs to logits will do."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(examples.inputs), examples.labels).backward()
        optimizer.step()
    return model.eval()


def rings_task() -> Task:
    """The ten lines: a model, examples to tune on, examples to test on."""
    training, tuning, test = make_rings(2000, 1), make_rings(500, 2), make_rings(2000, 3)
    model = train(training)
    return Task(
        name="rings",
        load_model=lambda: deepcopy(model),
        tuning_examples=lambda num_examples, seed: tuning.take(sample(len(tuning), num_examples, seed=seed)),
        test_examples=lambda num_examples: test.take(sample(len(test), num_examples, seed=0)),
    )


def main() -> None:
    """Send the network through noise and repair it, with and without tuned temperatures."""
    task = rings_task()
    clean, test, tuning = task.load_model(), task.test_examples(None), task.tuning_examples(100, 0)
    print(f"clean      {task.evaluate(clean, test).accuracy:.1%}")
    sent = quietnn.transmit(clean, wnr_db=6.0, seed=0)
    print(f"received   {task.evaluate(sent.received, test).accuracy:.1%}")
    for groups in ("whole", "layerwise"):
        mmse = quietnn.denoise(sent, groups=groups).model
        print(f"mmse       {task.evaluate(mmse, test).accuracy:.1%}  {groups}")
        tuned = quietnn.tune(sent, tuning.inputs, tuning.labels, groups=groups).model
        print(f"mmse_pb    {task.evaluate(tuned, test).accuracy:.1%}  {groups}")
    repaired = quietnn.repair(sent, tuning.inputs, tuning.labels)
    print(f"repaired   {task.evaluate(repaired.model, test).accuracy:.1%}  by {repaired.name}")


if __name__ == "__main__":
    main()
