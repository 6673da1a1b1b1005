"""How networks are trained where no weights exist: image classifiers from scratch, encoders fine-tuned."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import outputs_of
from quietnn.errors import InvalidConfig
from quietnn.tasks.augmentation import clip_weights, noisy_logits, random_crop_flip, shrink
from quietnn.tasks.base import Examples
from quietnn.tasks.fit import Plan, Recipe, Run, decay_groups, fit
from quietnn.tasks.sst2 import lengths, trim


@dataclass(frozen=True)
class ImageRecipe(Recipe):
    """How an image classifier is trained.

    SGD with Nesterov momentum under a one-cycle learning rate, which rises over the fraction `warmup` of the run. Label
    smoothing, random crops and flips; no weight decay on biases and normalisation. The last incomplete batch of an
    epoch is dropped.

    With `small_images = ((16, 0.4), (24, 0.7))` the first 40 % of the epochs see the images at 16x16, those up to 70 %
    at 24x24, and the rest at full size. Epochs at 16x16 cost a quarter. The last ones have the size of the test images.
    With `weight_noise_db` every step sees the weights through noise at this WNR; with `weight_noise_share`, through
    noise of this share of the largest weight of each tensor. `weight_clip` holds weights within so many standard
    deviations of their tensor.
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
    weight_noise_db: float | None = None
    weight_noise_share: float | None = None
    weight_clip: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse two kinds of noise at once, and numbers that cannot train anything."""
        super().__post_init__()
        if self.weight_noise_db is not None and self.weight_noise_share is not None:
            raise InvalidConfig(
                f"weight_noise_db is {self.weight_noise_db:g} and weight_noise_share {self.weight_noise_share:g}; "
                "both tell how strong the noise is: leave one out"
            )
        for name in ("weight_noise_share", "weight_clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidConfig(f"{name} is {value}; it must be above 0: weight_noise_share=0.04, weight_clip=2")

    def learning_rate(self, done: float) -> float:
        """It rises linearly to its peak over the warmup, then falls as a cosine to zero.

        >>> rate = ImageRecipe(peak_lr=0.4, warmup=0.25).learning_rate
        >>> rate(0.25), rate(0.625), round(rate(1.0), 9)
        (0.4, 0.2, 0.0)
        """
        if done < self.warmup:
            return self.peak_lr * (0.04 + 0.96 * done / self.warmup)
        return self.peak_lr * 0.5 * (1.0 + math.cos(math.pi * (done - self.warmup) / (1.0 - self.warmup)))

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
    run: Run,
) -> dict[str, Tensor]:
    """Train in place on uint8 images, which `prepare` turns into what the network expects; return the state dict.

    Safe to kill: called again it resumes and ends the same.
    """
    if len(images) < recipe.batch_size:
        raise InvalidConfig(f"a batch of {recipe.batch_size} needs more than {len(images)} images; lower --batch-size")
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        decay_groups(model, recipe.weight_decay), lr=recipe.peak_lr, momentum=recipe.momentum, nesterov=True
    )

    def batches(epoch: int, generator: torch.Generator) -> Iterator[Examples]:
        order = torch.randperm(len(images), generator=generator)
        size = recipe.image_size(epoch, images.shape[-1])
        for start in range(0, len(images) - recipe.batch_size + 1, recipe.batch_size):
            chosen = order[start : start + recipe.batch_size]
            cropped = random_crop_flip(
                images[chosen], padding=recipe.crop_padding, flips=recipe.flips, generator=generator
            )
            inputs = shrink(prepare(cropped), size).contiguous(memory_format=torch.channels_last)
            yield Examples(inputs=inputs, labels=labels[chosen])

    def loss(network: nn.Module, batch: Examples) -> Tensor:
        if recipe.weight_clip is not None:
            clip_weights(network, recipe.weight_clip)
        if recipe.weight_noise_db is None and recipe.weight_noise_share is None:
            logits = outputs_of(network, batch.inputs)
        else:
            level = {"wnr_db": recipe.weight_noise_db, "share": recipe.weight_noise_share}
            logits = noisy_logits(network, batch.inputs, **level)
        return functional.cross_entropy(logits, batch.labels, label_smoothing=recipe.label_smoothing)

    settings = {**asdict(recipe), "num_images": len(images)}
    plan = Plan(recipe, settings, len(images) // recipe.batch_size, batches, loss)
    weights = fit(model, optimizer, plan, run)
    if recipe.weight_clip is not None:
        clip_weights(model, recipe.weight_clip)  # the last step may have gone past it
    return weights


@dataclass(frozen=True)
class EncoderRecipe(Recipe):
    """How an encoder is fine-tuned: AdamW, linear warmup and decay, gradients clipped at norm 1."""

    num_epochs: int = 3
    batch_size: int = 32
    peak_lr: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    seed: int = 0

    def learning_rate(self, done: float) -> float:
        """It rises linearly to its peak over the warmup, then falls linearly to zero.

        >>> rate = EncoderRecipe(peak_lr=0.4, warmup=0.2).learning_rate
        >>> rate(0.1), rate(0.2), round(rate(0.6), 9)
        (0.2, 0.4, 0.2)
        """
        return self.peak_lr * (done / self.warmup if done < self.warmup else (1.0 - done) / (1.0 - self.warmup))


def finetune_encoder(model: nn.Module, examples: Examples, *, recipe: EncoderRecipe, run: Run) -> dict[str, Tensor]:
    """Fine-tune in place; return the state dict. Safe to kill: called again it resumes and ends the same."""
    optimizer = torch.optim.AdamW(decay_groups(model, recipe.weight_decay), lr=recipe.peak_lr)

    def batches(_: int, generator: torch.Generator) -> Iterator[Examples]:
        """Random batches of similar length: shuffle, sort within pools of 20 batches, shuffle the batches."""
        order = torch.randperm(len(examples), generator=generator)
        length = lengths(examples)
        parts: list[Tensor] = []
        for pool in torch.split(order, 20 * recipe.batch_size):
            parts += torch.split(pool[length[pool].argsort(stable=True)], recipe.batch_size)
        for index in torch.randperm(len(parts), generator=generator).tolist():
            yield trim(examples.take(parts[index]))

    def loss(network: nn.Module, batch: Examples) -> Tensor:
        return functional.cross_entropy(outputs_of(network, batch.inputs), batch.labels)

    settings = {**asdict(recipe), "num_examples": len(examples)}
    plan = Plan(recipe, settings, -(-len(examples) // recipe.batch_size), batches, loss, max_gradient_norm=1.0)
    return fit(model, optimizer, plan, run)
