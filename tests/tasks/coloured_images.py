"""A tiny network and images to train it on in a moment."""

import torch
from torch import Tensor, nn

from quietnn.tasks.training import ImageRecipe

RECIPE = ImageRecipe(num_epochs=4, batch_size=16, peak_lr=0.1, crop_padding=1, small_images=((4, 0.5),))


def tiny_network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(32, 3),
        )


def coloured_images(num_images: int = 70) -> tuple[Tensor, Tensor]:
    """Noise in which the label's colour channel is brighter."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (num_images,), generator=generator)
    images = torch.randint(0, 160, (num_images, 3, 8, 8), generator=generator, dtype=torch.uint8)
    images[torch.arange(num_images), labels] += 60
    return images, labels


def prepare(images: Tensor) -> Tensor:
    return images.float() / 128.0 - 1.0
