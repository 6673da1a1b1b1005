"""Train an image classifier where no weights exist: a modern recipe that fits a few CPU cores."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import outputs_of
from quietnn.errors import InvalidConfig
from quietnn.tasks.augmentation import random_crop_flip, shrink
from quietnn.tasks.base import Examples
from quietnn.tasks.fit import CHECKPOINT_SECONDS, Plan, Progress, decay_groups, fit, ignore_progress, one_cycle
from quietnn.tasks.noise_injection import noisy_logits


@dataclass(frozen=True)
class ImageRecipe:
    """How an image classifier is trained.

    SGD with Nesterov momentum under a one-cycle learning rate, label smoothing, random crops and flips, no
    weight decay on biases and normalisation. With `small_images = ((16, 0.4), (24, 0.7))` the first 40 % of
    the epochs see the images at 16x16, those up to 70 % at 24x24, and the rest at full size: early epochs
    cost a quarter, and the last ones still fit the resolution the network is tested at.

    Attributes:
        num_epochs: passes over the training images.
        batch_size: images per step; the last incomplete batch of an epoch is dropped.
        peak_lr: the highest learning rate.
        warmup: fraction of the run in which the learning rate rises.
        momentum: of SGD.
        weight_decay: on matrices and kernels.
        label_smoothing: probability spread over all classes.
        crop_padding: largest shift of a random crop, in pixels.
        flips: whether half of the images are mirrored (digits must not be).
        small_images: pairs (size, fraction of the epochs up to which it is used), in order.
        ema_decay: if given, the result is the moving average of the weights.
        weight_noise_db: if given, every step sees the weights through noise at this WNR.
        seed: fixes initial order, crops and flips.
    """

    num_epochs: int = 24
    batch_size: int = 128
    peak_lr: float = 0.2
    warmup: float = 0.25
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    crop_padding: int = 4
    flips: bool = True
    small_images: tuple[tuple[int, float], ...] = ()
    ema_decay: float | None = None
    weight_noise_db: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that cannot train anything."""
        for name in ("num_epochs", "batch_size", "peak_lr"):
            if not getattr(self, name) > 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be above 0, give a positive number")
        if not 0.0 <= self.warmup < 1.0:
            raise InvalidConfig(f"warmup is {self.warmup}; it is a fraction of the run, from 0 up to 1")

    def image_size(self, epoch: int, full_size: int) -> int:
        """The side of the images in an epoch.

        >>> recipe = ImageRecipe(num_epochs=10, small_images=((16, 0.4), (24, 0.7)))
        >>> [recipe.image_size(epoch, 32) for epoch in range(10)]
        [16, 16, 16, 16, 24, 24, 24, 32, 32, 32]
        """
        for size, until in self.small_images:
            if epoch < round(until * self.num_epochs):
                return size
        return full_size


def train_classifier(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    recipe: ImageRecipe,
    prepare: Callable[[Tensor], Tensor],
    run_dir: Path,
    resume: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> dict[str, Tensor]:
    """Train in place; return the state dict to keep. Safe to kill: called again it resumes and ends the same.

    Args:
        model: a freshly initialised classifier.
        images: (num_images, channels, height, width), uint8.
        labels: class numbers, int64.
        recipe: how to train.
        prepare: turns uint8 images into the floats the network expects.
        run_dir: folder of the run's checkpoints.
        resume: continue what is in `run_dir`, else start over.
        checkpoint_seconds: what a kill may cost at most.
        on_progress: called after every step.
    """
    if len(images) < recipe.batch_size:
        raise InvalidConfig(f"a batch of {recipe.batch_size} needs more than {len(images)} images; lower --batch-size")
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        decay_groups(model, recipe.weight_decay), lr=recipe.peak_lr, momentum=recipe.momentum, nesterov=True
    )

    def loss(network: nn.Module, batch: Examples) -> Tensor:
        if recipe.weight_noise_db is None:
            logits = outputs_of(network, batch.inputs)
        else:
            logits = noisy_logits(network, batch.inputs, wnr_db=recipe.weight_noise_db)
        return functional.cross_entropy(logits, batch.labels, label_smoothing=recipe.label_smoothing)

    plan = Plan(
        num_epochs=recipe.num_epochs,
        num_steps=len(images) // recipe.batch_size,
        batches=lambda epoch: _image_batches(images, labels, recipe, prepare, epoch),
        loss=loss,
        learning_rate=one_cycle(recipe.peak_lr, warmup=recipe.warmup),
        seed=recipe.seed,
        ema_decay=recipe.ema_decay,
    )
    settings: dict[str, Any] = {**asdict(recipe), "num_images": len(images)}
    return fit(
        model,
        optimizer,
        plan,
        run_dir=run_dir,
        recipe=settings,
        resume=resume,
        checkpoint_seconds=checkpoint_seconds,
        on_progress=on_progress,
    )


def _image_batches(
    images: Tensor, labels: Tensor, recipe: ImageRecipe, prepare: Callable[[Tensor], Tensor], epoch: int
) -> Iterator[Examples]:
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(images), generator=generator)
    size = recipe.image_size(epoch, images.shape[-1])
    for start in range(0, len(images) - recipe.batch_size + 1, recipe.batch_size):
        chosen = order[start : start + recipe.batch_size]
        cropped = random_crop_flip(images[chosen], padding=recipe.crop_padding, flips=recipe.flips, generator=generator)
        inputs = shrink(prepare(cropped), size).contiguous(memory_format=torch.channels_last)
        yield Examples(inputs=inputs, labels=labels[chosen])
