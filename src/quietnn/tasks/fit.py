"""The training loop: steps, checkpoints every few minutes and after every epoch, and an exact resume."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.tasks.base import Examples
from quietnn.tasks.training_state import TrainingState, forget_states, load_state, save_state

CHECKPOINT_SECONDS = 300.0
"""A kill costs at most this much work; an epoch of a small network is shorter and is kept whole."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands, told to the callback after every step."""

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    loss: float
    learning_rate: float


def ignore_progress(progress: Progress) -> None:
    """The callback of those who do not want to know."""


@dataclass(frozen=True)
class Plan:
    """What an epoch consists of.

    Attributes:
        num_epochs: how many there are.
        num_steps: steps in each.
        batches: the epoch's number to its batches; the same every time it is asked.
        loss: the loss of a model on a batch.
        learning_rate: the fraction of the run that is behind, to the learning rate.
        seed: fixes dropout, together with the epoch's number.
        ema_decay: weight of the past in the moving average of the weights; None keeps no average.
        max_gradient_norm: longer gradients are scaled down to this.
    """

    num_epochs: int
    num_steps: int
    batches: Callable[[int], Iterator[Examples]]
    loss: Callable[[nn.Module, Examples], Tensor]
    learning_rate: Callable[[float], float]
    seed: int
    ema_decay: float | None = None
    max_gradient_norm: float = math.inf


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    plan: Plan,
    *,
    run_dir: Path,
    recipe: dict[str, Any],
    resume: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> dict[str, Tensor]:
    """Train the model in place and return the weights to keep: its own, or their average.

    Killed and called again with `resume`, it ends where the uninterrupted run would have.

    Args:
        model: the network to train.
        optimizer: holds the network's parameters.
        plan: batches, loss and learning rate.
        run_dir: the folder for checkpoints.
        recipe: what the run was asked for, JSON-able; a resume with another recipe is refused.
        resume: continue from the last checkpoint in `run_dir`, else start over.
        checkpoint_seconds: within an epoch, a checkpoint is written this long after the one before.
        on_progress: called after every step.
    """
    if not resume:
        forget_states(run_dir)
    state = load_state(run_dir, recipe=recipe)
    if state is None:
        average = plan.ema_decay is not None
        averaged = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()} if average else {}
        state = TrainingState(0, model.state_dict(), averaged, optimizer.state_dict())
    else:
        model.load_state_dict(state.model)
        optimizer.load_state_dict(state.optimizer)
    for epoch in range(state.num_epochs_done, plan.num_epochs):
        # The epoch that was interrupted goes on; those after it begin at their first step.
        begin = state if epoch == state.num_epochs_done else replace(state, num_steps_done=0, random_state=None)
        saved = time.monotonic()
        for progress in _train_epoch(model, optimizer, plan, epoch, begin):
            on_progress(progress)
            last = progress.step + 1 == plan.num_steps
            if last or time.monotonic() - saved >= checkpoint_seconds:
                done = (epoch + 1, 0) if last else (epoch, progress.step + 1)
                now = replace(begin, model=model.state_dict(), optimizer=optimizer.state_dict())
                random_state = None if last else torch.get_rng_state()
                now = replace(now, num_epochs_done=done[0], num_steps_done=done[1], random_state=random_state)
                save_state(run_dir, now, recipe=recipe)
                saved = time.monotonic()
    return state.averaged or model.state_dict()


def _train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, plan: Plan, epoch: int, begin: TrainingState
) -> Iterator[Progress]:
    """Take the epoch's steps from where `begin` stands; tell of each while its random state is torch's own."""
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed * 1_000_003 + epoch)
        if begin.random_state is not None:
            torch.set_rng_state(begin.random_state)
        batches = enumerate(plan.batches(epoch))
        for step, batch in islice(batches, begin.num_steps_done, None):
            learning_rate = plan.learning_rate((epoch + step / plan.num_steps) / plan.num_epochs)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.zero_grad(set_to_none=True)
            loss = plan.loss(model, batch)
            _refuse_divergence(float(loss.detach()), epoch, learning_rate)
            loss.backward()  # type: ignore[no-untyped-call]
            if math.isfinite(plan.max_gradient_norm):
                nn.utils.clip_grad_norm_(model.parameters(), plan.max_gradient_norm)
            optimizer.step()
            if plan.ema_decay is not None:
                _average(begin.averaged, model, plan.ema_decay)
            yield Progress(epoch, plan.num_epochs, step, plan.num_steps, float(loss.detach()), learning_rate)


def _refuse_divergence(loss: float, epoch: int, learning_rate: float) -> None:
    if not math.isfinite(loss):
        raise InvalidConfig(
            f"the loss became {loss} in epoch {epoch + 1} at a learning rate of {learning_rate:.3g}; "
            "try a lower --lr, and check the inputs for values that are not finite"
        )


def _average(averaged: dict[str, Tensor], model: nn.Module, decay: float) -> None:
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                averaged[name].lerp_(tensor, 1.0 - decay)
            else:
                averaged[name].copy_(tensor)


def one_cycle(peak: float, *, warmup: float) -> Callable[[float], float]:
    """A learning rate that rises linearly to `peak` over the first fraction, then falls as a cosine to zero.

    >>> rate = one_cycle(0.4, warmup=0.25)
    >>> rate(0.25), rate(0.625), round(rate(1.0), 9)
    (0.4, 0.2, 0.0)
    """

    def learning_rate(done: float) -> float:
        if done < warmup:
            return peak * (0.04 + 0.96 * done / warmup)
        return peak * 0.5 * (1.0 + math.cos(math.pi * (done - warmup) / (1.0 - warmup)))

    return learning_rate


def linear_decay(peak: float, *, warmup: float) -> Callable[[float], float]:
    """A learning rate that rises linearly to `peak` over the first fraction, then falls linearly to zero.

    >>> rate = linear_decay(0.4, warmup=0.2)
    >>> rate(0.1), rate(0.2), round(rate(0.6), 9)
    (0.2, 0.4, 0.2)
    """

    def learning_rate(done: float) -> float:
        return peak * (done / warmup if done < warmup else (1.0 - done) / (1.0 - warmup))

    return learning_rate


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: matrices and kernels decay, biases and normalisation do not."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trainable if parameter.dim() > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trainable if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
