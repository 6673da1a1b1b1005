"""What is learned together: a network, training examples to share out, test examples."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from quietnn.channels.randomness import derive_seed
from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.federated.devices import DeviceData
from quietnn.federated.estimators import Judge
from quietnn.federated.partition import Parts
from quietnn.score import Score
from quietnn.tasks.augmentation import shrink
from quietnn.tasks.base import Examples, evaluate_classifier, sample
from quietnn.tasks.cifar10_task import CIFAR10
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.models.plain import PlainCNN
from quietnn.tasks.registry import is_own, made_by, own_function
from quietnn.weights import Weights

NETWORKS: dict[str, Callable[[], nn.Module]] = {"plain-cnn": PlainCNN, **IMAGE_MODELS}
"""The networks for CIFAR-10."""

FEDERATED_TASKS = ("digits", "digits/mlp", *(f"cifar10/{name}" for name in NETWORKS))


@dataclass(frozen=True)
class FederatedTask:
    """A network to be trained from scratch, and the data for it.

    Attributes:
        name: what the records call it.
        fresh_model: makes the network with random weights fixed by a seed.
        inputs: all training inputs, as stored.
        labels: their class numbers.
        prepare: turns stored inputs into what the network takes.
        test: all test examples, ready for the network.
    """

    name: str
    fresh_model: Callable[[int], nn.Module]
    inputs: Tensor
    labels: Tensor
    prepare: Callable[[Tensor], Tensor]
    test: Examples

    def devices(self, parts: Parts) -> dict[int, DeviceData]:
        """The examples of each device."""
        return {
            device: DeviceData(self.inputs[part], self.labels[part], self.prepare) for device, part in enumerate(parts)
        }

    def validation(self, num_examples: int, *, seed: int) -> Examples:
        """Examples for a server to tune on, sampled from the training set as in the paper; never test examples."""
        chosen = sample(len(self.labels), num_examples, seed=derive_seed(seed, "validation"))
        return Examples(self.prepare(self.inputs[chosen]), self.labels[chosen])

    def score_on(self, examples: Examples) -> Judge:
        """Judges a state dict on examples, in a network of its own."""
        model = self.fresh_model(0)

        def score(state: Weights) -> Score:
            model.load_state_dict(state)
            return evaluate_classifier(model, examples)

        return score


def load_federated_task(name: str, *, image_size: int | None = None, data_dir: Path | None = None) -> FederatedTask:
    """The task with this name: `digits`, `digits/mlp`, `cifar10/` and a network of `NETWORKS`, or one of yours.

    Args:
        name: which task; `package.module:function` is a function of yours that returns a `FederatedTask`. It is given
            `image_size` and `data_dir` if it takes arguments of these names.
        image_size: CIFAR-10 only: images are shrunk to this side; None leaves them at 32.
        data_dir: where data sets lie; default `$QUIETNN_DATA`, then `~/.cache/quietnn`.
    """
    if is_own(name):
        offered = {"data_dir": data_dir, "image_size": image_size}
        return made_by(own_function(name), FederatedTask, offered, name=name)
    if name not in FEDERATED_TASKS:
        raise unknown_choice("task", name, FEDERATED_TASKS)
    if name.startswith("digits"):
        if image_size is not None:
            raise InvalidConfig(f"image_size is {image_size}, but digits are 8x8; leave it out")
        return _digits(name)
    return _cifar10(name, resolve_data_dir(data_dir), image_size or 32)


def _digits(name: str) -> FederatedTask:
    from quietnn.tasks.digits import examples
    from quietnn.tasks.models.plain import DigitsMLP
    from quietnn.tasks.models.resnet import DigitsResNet

    train = examples("train")
    assert isinstance(train.inputs, Tensor)
    make: Callable[[], nn.Module] = DigitsMLP if name == "digits/mlp" else DigitsResNet
    return FederatedTask(name, partial(_fresh, make), train.inputs, train.labels, nn.Identity(), examples("test"))


def _cifar10(name: str, folder: Path, image_size: int) -> FederatedTask:
    from quietnn.tasks.cifar10 import load_cifar10

    images, labels = load_cifar10(folder, "train")
    test_images, test_labels = load_cifar10(folder, "test")
    fresh = partial(_fresh, NETWORKS[name.partition("/")[2]])
    tested = Examples(_normalised(_shrunk(test_images, image_size)), test_labels)
    return FederatedTask(name, fresh, _shrunk(images, image_size), labels, _normalised, tested)


def _fresh(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "initial weights"))
        model = make()
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _shrunk(images: Tensor, size: int) -> Tensor:
    """Images as uint8 at another size, so that fifty thousand of them stay small in memory."""
    if images.shape[-1] == size:
        return images
    pieces = [
        shrink(piece.float(), size).round_().clamp_(0, 255).to(torch.uint8) for piece in torch.split(images, 5000)
    ]
    return torch.cat(pieces)


def _normalised(images: Tensor) -> Tensor:
    return CIFAR10(images).contiguous(memory_format=torch.channels_last)
