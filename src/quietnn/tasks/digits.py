"""The embedded task: 1,797 handwritten digits and a small residual network, both shipped with the package.

The images are the test part of the "Optical Recognition of Handwritten Digits" set (Alpaydin and Kaynak, 1998,
UCI Machine Learning Repository), 8x8 pixels with values 0..16, the same that scikit-learn ships. They are split
once and for all: 1,000 to train on, 297 to tune on, 500 to test on.
"""

from functools import cache
from importlib import resources
from pathlib import Path

import torch
from safetensors.torch import load
from torch import Tensor

from quietnn.tasks.base import Examples, Task, sample
from quietnn.tasks.fit import Run
from quietnn.tasks.models.resnet import DigitsResNet
from quietnn.tasks.training import ImageRecipe, train_classifier
from quietnn.tasks.weights_file import load_weights

RECIPE = ImageRecipe(num_epochs=40, batch_size=50, peak_lr=0.1, crop_padding=1, flips=False)
"""How the shipped weights were trained, with `quietnn train digits`."""

_SPLIT = {"train": slice(0, 1000), "tuning": slice(1000, 1297), "test": slice(1297, 1797)}


def digits_task(weights: Path | None = None) -> Task:
    """The digits with the shipped network, or with weights of your own for the same network."""

    def load_model() -> DigitsResNet:
        model = DigitsResNet()
        if weights is None:
            model.load_state_dict(load(_shipped("digits-resnet.safetensors")))
        else:
            load_weights(model, weights)
        return model.eval()

    def tuning_examples(num_examples: int, seed: int) -> Examples:
        return examples("tuning").sample(num_examples, seed=seed)

    def test_examples(num_examples: int | None, first: int = 0) -> Examples:
        return examples("test").sample(num_examples, first=first)

    return Task("digits", load_model, tuning_examples, test_examples)


def examples(part: str) -> Examples:
    """The `"train"`, `"tuning"` or `"test"` digits, as the network takes them.

    >>> len(examples("train")), len(examples("tuning")), len(examples("test"))
    (1000, 297, 500)
    """
    images, labels = _split(part)
    return Examples(prepare(images), labels)


def prepare(images: Tensor) -> Tensor:
    """Bring pixel values 0..16 to about zero mean and unit variance, in float32."""
    return (images.float() - 4.9) / 6.0


def train_digits(run: Run, *, recipe: ImageRecipe = RECIPE) -> dict[str, Tensor]:
    """Train the digits network from scratch on the 1,000 training digits and return its state dict."""
    images, labels = _split("train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = DigitsResNet()
    return train_classifier(model, images, labels, recipe=recipe, prepare=prepare, run=run)


def _split(part: str) -> tuple[Tensor, Tensor]:
    images, labels = _digits()
    order = sample(len(labels), len(labels), seed=0)[_SPLIT[part]]
    return images[order], labels[order]


@cache
def _digits() -> tuple[Tensor, Tensor]:
    tensors = load(_shipped("digits.safetensors"))
    return tensors["images"].unsqueeze(1), tensors["labels"].long()


def _shipped(name: str) -> bytes:
    return (resources.files("quietnn.tasks") / "data" / name).read_bytes()
