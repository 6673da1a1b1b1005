"""What a device does in a round: train the broadcast weights on its own examples, and say what changed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import outputs_of
from quietnn.channels.randomness import generator_for
from quietnn.errors import QuietnnError
from quietnn.tasks.augmentation import random_crop_flip
from quietnn.weights import Weights

if TYPE_CHECKING:
    from quietnn.federated.settings import FederationSettings


class Diverged(QuietnnError):
    """Training that left the finite numbers: the run ends here, with a record that says so."""


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
    settings: "FederationSettings",
    *,
    device: int,
    round_number: int,
    seed: int,
) -> tuple[dict[str, Tensor], float]:
    """Train from the broadcast `state`: the update `w_m - w` of every tensor, buffers included, and the mean loss.

    Plain SGD, whose momentum starts at zero. Everything random follows from `(seed, device, round_number)`: the result
    does not depend on where or in which order the devices run. The weights of `model` are overwritten.

    Raises:
        Diverged: if the loss is no longer a finite number.
    """
    model.load_state_dict(state)
    model.train()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate_at(round_number),
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    generator = generator_for(seed, "device", device, round_number)
    losses = []
    with torch.random.fork_rng(devices=[]):  # for networks with dropout
        torch.manual_seed(generator.initial_seed())
        for epoch in range(settings.num_epochs):
            loss = _train_epoch(model, optimizer, data, settings, generator)
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
    settings: "FederationSettings",
    generator: torch.Generator,
) -> float:
    """One pass in random order; the mean loss over the examples. A last batch of one example is left out."""
    total, num_examples = torch.zeros(()), 0
    for chosen in torch.split(torch.randperm(len(data), generator=generator), settings.batch_size):
        if len(chosen) == 1 and len(data) > 1:  # BatchNorm has no variance to divide by
            continue
        inputs = data.inputs[chosen]
        if settings.crop_padding or settings.flips:
            inputs = random_crop_flip(inputs, padding=settings.crop_padding, flips=settings.flips, generator=generator)
        loss = functional.cross_entropy(outputs_of(model, data.prepare(inputs)), data.labels[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach() * len(chosen)
        num_examples += len(chosen)
    return float(total) / num_examples
