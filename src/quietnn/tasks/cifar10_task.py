"""CIFAR-10 with one of the image networks: tuned on training images, tested on test images."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from quietnn.errors import InvalidWeights
from quietnn.tasks.augmentation import random_crop_flip
from quietnn.tasks.base import Examples, Task, sample
from quietnn.tasks.cifar10 import BINARY, PYTHON, Layout, Split, load_cifar10
from quietnn.tasks.data_dir import first_of
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.weights_file import load_weights

METADATA_KEY = "input_normalisation"
"""The key of the weights file's metadata that holds the text form."""


@dataclass(frozen=True)
class InputNormalisation:
    """Channelwise `(x / 255 - mean) / std`; means 0 and standard deviations 1 leave inputs in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Turn uint8 images (num_images, channels, height, width) into floats."""
        mean = torch.tensor(self.mean).reshape(-1, 1, 1)
        std = torch.tensor(self.std).reshape(-1, 1, 1)
        # In place: ten thousand images are 123 MB, and fresh buffers cost more than the arithmetic.
        return images.float().div_(255.0).sub_(mean).div_(std)

    def __str__(self) -> str:
        """The text form, read back by `parse_normalisation`."""
        return ",".join(map(str, self.mean)) + "/" + ",".join(map(str, self.std))


RAW = InputNormalisation(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
CIFAR10 = InputNormalisation(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


def parse_normalisation(text: str) -> InputNormalisation:
    """Read `none, ...` or `mean,mean,mean/std,std,std`.

    >>> parse_normalisation("none, raw [0, 1]") == RAW
    True
    >>> parse_normalisation("0.5,0.5,0.5/0.2,0.2,0.25").std
    (0.2, 0.2, 0.25)
    """
    if text.strip().lower().startswith("none"):
        return RAW
    try:
        mean, std = (tuple(float(number) for number in part.split(",")) for part in text.split("/"))
    except ValueError:
        mean, std = (), ()
    if len(mean) != 3 or len(std) != 3 or not all(value > 0 for value in std):
        raise InvalidWeights(
            f"the weights' metadata gives {METADATA_KEY} as {text!r}; expected 'none' or 'm,m,m/s,s,s' with s > 0"
        )
    return InputNormalisation(mean=mean, std=std)


def weights_path(architecture: str, data_dir: Path) -> Path:
    """Where the weights of an architecture are looked for, and where training puts them."""
    return data_dir / "weights" / f"{architecture}-cifar10.safetensors"


def cifar10_task(
    architecture: str,
    *,
    data_dir: Path,
    weights: Path | None = None,
    layouts: tuple[Layout, ...] = (BINARY, PYTHON),
) -> Task:
    """CIFAR-10 with a network of `IMAGE_MODELS` and its clean weights.

    The weights file says how its network wants images normalised (`input_normalisation` in the metadata:
    `none`, or `m,m,m/s,s,s`); a file that does not say gets images in [0, 1].
    """
    path = weights or weights_path(architecture, data_dir)
    remedy = f"Train them with: quietnn train cifar10/{architecture}, or name a file with --weights."
    first_of(f"a file with the weights of {architecture}", [path], remedy)
    # Read at once, so that weights that do not fit are refused now and not in the middle of a sweep.
    clean = IMAGE_MODELS[architecture]()
    normalisation = parse_normalisation(load_weights(clean, path).get(METADATA_KEY, "none"))

    @cache
    def split(name: Split) -> tuple[Tensor, Tensor]:
        return load_cifar10(data_dir, name, layouts=layouts)

    def examples(name: Split, num_examples: int | None, seed: int = 0, first: int = 0) -> Examples:
        images, labels = split(name)
        chosen = sample(len(labels), num_examples, seed=seed, first=first)
        # channels_last runs the convolutions of the larger networks up to 1.7 times faster on a CPU.
        inputs = normalisation(images[chosen]).contiguous(memory_format=torch.channels_last)
        return Examples(inputs=inputs, labels=labels[chosen])

    return Task(
        name=f"cifar10/{architecture}",
        load_model=lambda: deepcopy(clean).eval(),
        tuning_examples=partial(examples, "train"),
        test_examples=lambda num_examples, first=0: examples("test", num_examples, first=first),
        augment=crop_flip,
    )


def crop_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """The usual variants of CIFAR images: shifts of up to four pixels and mirror images."""
    return random_crop_flip(images, padding=4, generator=generator)
