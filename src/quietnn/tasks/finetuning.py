"""Fine-tune a pretrained encoder into a sentence classifier."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import outputs_of
from quietnn.errors import InvalidConfig
from quietnn.tasks.base import Examples
from quietnn.tasks.encoders import lengths, trim
from quietnn.tasks.fit import Plan, Progress, decay_groups, fit, ignore_progress, linear_decay


@dataclass(frozen=True)
class EncoderRecipe:
    """How an encoder is fine-tuned: AdamW, linear warmup and decay, gradients clipped at norm 1."""

    num_epochs: int = 3
    batch_size: int = 32
    peak_lr: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that cannot train anything."""
        for name in ("num_epochs", "batch_size", "peak_lr"):
            if not getattr(self, name) > 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be above 0")


def finetune_encoder(
    model: nn.Module,
    examples: Examples,
    *,
    recipe: EncoderRecipe,
    run_dir: Path,
    resume: bool = True,
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> dict[str, Tensor]:
    """Fine-tune in place; return the state dict. Safe to kill: called again it resumes and ends the same."""
    optimizer = torch.optim.AdamW(decay_groups(model, recipe.weight_decay), lr=recipe.peak_lr)
    plan = Plan(
        num_epochs=recipe.num_epochs,
        num_steps=-(-len(examples) // recipe.batch_size),
        batches=lambda epoch: _bucketed_batches(examples, recipe, epoch),
        loss=lambda network, batch: functional.cross_entropy(outputs_of(network, batch.inputs), batch.labels),
        learning_rate=linear_decay(recipe.peak_lr, warmup=recipe.warmup),
        seed=recipe.seed,
        max_gradient_norm=1.0,
    )
    settings = {**asdict(recipe), "num_examples": len(examples)}
    return fit(model, optimizer, plan, run_dir=run_dir, recipe=settings, resume=resume, on_progress=on_progress)


def _bucketed_batches(examples: Examples, recipe: EncoderRecipe, epoch: int) -> Iterator[Examples]:
    """Random batches of similar length: shuffle, sort within pools of 20 batches, shuffle the batches."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(examples), generator=generator)
    length = lengths(examples)
    batches: list[Tensor] = []
    for pool in torch.split(order, 20 * recipe.batch_size):
        batches += torch.split(pool[length[pool].argsort(stable=True)], recipe.batch_size)
    for index in torch.randperm(len(batches), generator=generator).tolist():
        yield trim(examples.take(batches[index]))
