"""What a device does in a round: train the broadcast weights on its own examples, and say what changed."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import outputs_of
from quietnn.channels.randomness import generator_for
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.tasks.augmentation import random_crop_flip
from quietnn.weights import Weights


class Diverged(QuietnnError):
    """Training that left the finite numbers: the run ends here, with a record that says so."""


@dataclass(frozen=True)
class LocalTraining:
    """How a device trains: plain SGD whose learning rate follows half a cosine over the rounds.

    The defaults are the authors'. Momentum starts at zero in every round. The fields are those of
    `quietnn.federated.settings.FederationSettings`, which describes them; the learning rate needs `num_rounds`.
    """

    num_rounds: int = 100
    num_epochs: int = 5
    batch_size: int = 1024
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    crop_padding: int = 0
    flips: bool = False

    def __post_init__(self) -> None:
        for name in ("num_rounds", "num_epochs", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("momentum", "weight_decay", "crop_padding"):
            if not getattr(self, name) >= 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be 0 or more")

    def learning_rate_at(self, round_number: int) -> float:
        """The learning rate of a round: `lr (1 + cos(pi t / T)) / 2`, the rounds counted from 0.

        >>> recipe = LocalTraining(num_rounds=4, learning_rate=0.1)
        >>> [round(recipe.learning_rate_at(t), 4) for t in range(4)]
        [0.1, 0.0854, 0.05, 0.0146]
        """
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * round_number / self.num_rounds))


@dataclass(frozen=True)
class DeviceData:
    """The examples of one device, as stored; `prepare` turns inputs into what the network takes."""

    inputs: Tensor
    labels: Tensor
    prepare: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        """How many examples the device has."""
        return len(self.labels)


def train_device(
    model: nn.Module,
    state: Weights,
    data: DeviceData,
    recipe: LocalTraining,
    *,
    device: int,
    round_number: int,
    seed: int,
) -> tuple[dict[str, Tensor], float]:
    """Train from the broadcast `state`: the update `w_m - w` of every tensor, buffers included, and the mean loss.

    Everything random follows from `(seed, device, round_number)`: the result does not depend on where or in which
    order the devices run. The weights of `model` are overwritten; rounds are counted from 0.

    Raises:
        Diverged: if the loss is no longer a finite number.
    """
    model.load_state_dict(state)
    model.train()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=recipe.learning_rate_at(round_number),
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
    )
    generator = generator_for(seed, "device", device, round_number)
    losses = []
    with torch.random.fork_rng(devices=[]):  # for networks with dropout
        torch.manual_seed(generator.initial_seed())
        for epoch in range(recipe.num_epochs):
            loss = _train_epoch(model, optimizer, data, recipe, generator)
            if not math.isfinite(loss):
                raise Diverged(
                    f"the loss of device {device} became {loss} in round {round_number + 1}, local epoch {epoch + 1}; "
                    "try a smaller learning_rate, more WNR, or a denoiser that shrinks"
                )
            losses.append(loss)
    trained = model.state_dict()
    return {name: trained[name] - tensor for name, tensor in state.items()}, sum(losses) / len(losses)


def _train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: DeviceData,
    recipe: LocalTraining,
    generator: torch.Generator,
) -> float:
    """One pass in random order; the mean loss over the examples. A last batch of one example is left out."""
    total, num_examples = torch.zeros(()), 0
    for chosen in torch.split(torch.randperm(len(data), generator=generator), recipe.batch_size):
        if len(chosen) == 1 and len(data) > 1:  # BatchNorm has no variance to divide by
            continue
        inputs = data.inputs[chosen]
        if recipe.crop_padding or recipe.flips:
            inputs = random_crop_flip(inputs, padding=recipe.crop_padding, flips=recipe.flips, generator=generator)
        loss = functional.cross_entropy(outputs_of(model, data.prepare(inputs)), data.labels[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach() * len(chosen)
        num_examples += len(chosen)
    return float(total) / num_examples
