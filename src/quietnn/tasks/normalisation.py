"""What a network expects of its input images, as its weights file says it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.errors import InvalidWeights

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

    Raises:
        InvalidWeights: if it is neither.

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
