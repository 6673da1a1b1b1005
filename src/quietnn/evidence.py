"""What is known about the task: inputs, labels, a loss, a score, variants of the inputs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import (
    Inputs,
    InputsOf,
    as_inputs,
    check_finite,
    in_evaluation,
    joined,
    loader_of,
    num_inputs,
    outputs_of,
    parts_of_batch,
    take,
)
from quietnn.errors import InvalidConfig, check_function
from quietnn.losses import Loss, Losses, Verdict, checked_labels, cross_entropy, finite, mean_loss_of, verdict_of
from quietnn.score import Score, SubsetScore, as_score
from quietnn.teaching import check_teacher, divergence, told_by
from quietnn.variants import Variants

BATCH_SIZE = 256
"""Examples that go through a network at once where nothing else is said: a gradient of ResNet18 then takes 4 GB."""

_CALLED_WITH = {
    "loss": "outputs, labels",
    "score": "network",
    "augment": "inputs, generator",
    "run": "network, inputs",
    "mean_loss": "network, positions, generator",
}
"""The functions that a user may give, and what each is called with."""


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """Examples of what a network is for, with or without labels, and how a network is judged on them.

    Attributes:
        inputs: a tensor or an array, or a dict of them passed by keyword; or a `Dataset`, a `DataLoader` or any other
            collection of batches that can be read more than once. A batch is inputs, `(inputs, labels)`, or a dict
            with `labels` in it.
        labels: class numbers, or what else `loss` compares outputs with. A loader brings its own, and so may a dict.
        loss: a function of `(outputs, labels)` that returns one loss per example; by default cross-entropy.
        score: a function from a network to a number, if accuracy and loss on the examples are not what counts.
        higher_is_better: False if a lower `score` is better.
        augment: random variants of a tensor of inputs that keep their labels, for methods that fit; `False` for none.
        batch_size: examples that go through a network at once.
        run: calls the network and returns outputs in the order of inputs. It is used where labels fit or judge a
            network; repairs without labels call the network on the inputs.
        mean_loss: replaces inputs, labels and loss for methods that fit weights, see `Loss`. It needs `num_examples`.
        num_examples: how many positions `mean_loss` can address.
        teacher: the clean network; its outputs, for inputs and for their variants, are the labels that `loss` compares.

    >>> evidence = Evidence(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> len(evidence), round(evidence.score_of(nn.Identity()).loss, 4)       # two classes, equal logits: log 2
    (4, 0.6931)
    """

    inputs: Any = None
    labels: Any = None
    loss: Losses = field(default=cross_entropy)
    score: Callable[[nn.Module], Score | float] | SubsetScore | None = None
    higher_is_better: bool = True
    augment: Variants = None
    batch_size: int = BATCH_SIZE
    run: Callable[[nn.Module, Inputs], Tensor] = field(default=outputs_of)
    mean_loss: Loss | None = None
    num_examples: int | None = None
    teacher: nn.Module | None = None

    def __post_init__(self) -> None:
        """Bring inputs and labels into tensors, and refuse what no network can be run or judged on."""
        if self.teacher is not None:
            check_teacher(self.teacher, self.inputs, self.labels)
        if self.loss is None or self.loss is cross_entropy:
            object.__setattr__(self, "loss", cross_entropy if self.teacher is None else divergence)
        for name, parameters in _CALLED_WITH.items():
            given = getattr(self, name)
            check_function(name, None if name == "augment" and given is False else given, parameters)
        if (self.mean_loss is None) != (self.num_examples is None):
            raise InvalidConfig("mean_loss goes with num_examples: Evidence(mean_loss=f, num_examples=100)")
        for name in ("batch_size", "num_examples"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InvalidConfig(f"{name} is {value!r}; it must be a whole number, 1 or more: {name}=100")
        if self.inputs is None and self.labels is not None:
            raise InvalidConfig("labels came without inputs; give both: repair(model, inputs, labels)")
        if self.inputs is not None:
            self._take_in_hand(loader_of(self.inputs, self.batch_size))

    def _take_in_hand(self, loader: Iterable[Any] | None) -> None:
        """Keep the loader, if it is one; else tensors of inputs and labels, once they are known to go together."""
        in_dict = isinstance(self.inputs, Mapping) and "labels" in self.inputs
        if self.labels is not None and (loader is not None or in_dict):
            raise InvalidConfig(
                f"a {type(self.inputs).__name__} brings its labels, and labels were given too; leave labels out"
            )
        if loader is not None:
            object.__setattr__(self, "inputs", loader)
            return
        inputs, labels = parts_of_batch(self.inputs) if in_dict else (as_inputs(self.inputs), self.labels)
        if not num_inputs(inputs):
            raise InvalidConfig("there are no inputs: the first dimension is 0; give about a hundred, inputs[:100]")
        check_finite(inputs)
        object.__setattr__(self, "inputs", inputs)
        if labels is not None:
            object.__setattr__(self, "labels", checked_labels(labels, num_inputs(inputs), self.loss))

    def __repr__(self) -> str:
        """One line."""
        if self.is_streamed:
            what = f"{type(self.inputs).__name__} of batches"
        else:
            what = f"{len(self)} examples" if len(self) else "nothing"
        labels = ", labels" if self.labels is not None or self.mean_loss is not None else ""
        return f"Evidence({what}{labels if self.teacher is None else ', a teacher'})"

    @classmethod
    def of(cls, inputs: object = None, labels: object = None, **more: Any) -> "Evidence":
        """Evidence from what is passed to a repair: an `Evidence`, or inputs and labels in any form."""
        if isinstance(inputs, Evidence):
            given = [name for name, value in more.items() if value is not None]
            if labels is not None or given:
                raise InvalidConfig(
                    f"{'labels' if labels is not None else given[0]} came beside an Evidence, which holds its own; "
                    "make one with dataclasses.replace(evidence, ...)"
                )
            return inputs
        return cls(inputs, labels, **{name: value for name, value in more.items() if value is not None})

    @property
    def has_inputs(self) -> bool:
        """Whether there are inputs to run."""
        return self.inputs is not None

    @cached_property
    def has_labels(self) -> bool:
        """Whether networks can be judged on labels, or by a loss that needs none."""
        told = self.mean_loss is not None or self.labels is not None or self.teacher is not None
        return told or (self.is_streamed and next(self.batches())[1] is not None)

    @property
    def is_streamed(self) -> bool:
        """Whether inputs come in batches and are not held in memory."""
        return self.inputs is not None and not isinstance(self.inputs, Tensor | Mapping)

    def __len__(self) -> int:
        """How many examples there are, in memory or addressed by `mean_loss`."""
        if self.num_examples is not None:
            return self.num_examples
        return 0 if self.inputs is None else num_inputs(self.in_memory().inputs)

    def batches(self) -> Iterator[tuple[Inputs, Tensor | None]]:
        """Inputs and labels, `batch_size` at a time or in the loader's batches. Each batch is checked."""
        if self.teacher is not None and self.labels is None:
            for inputs, _ in replace(self, teacher=None).batches():
                yield inputs, told_by(self.teacher, inputs, self.run)
            return
        if not self.is_streamed:
            for start in range(0, num_inputs(self.inputs), self.batch_size):
                part = slice(start, start + self.batch_size)
                yield take(self.inputs, part), None if self.labels is None else self.labels[part]
            return
        batch = None
        for batch in self.inputs:
            inputs, labels = parts_of_batch(batch)
            check_finite(inputs)
            yield inputs, None if labels is None else checked_labels(labels, num_inputs(inputs), self.loss)
        if batch is None:
            raise InvalidConfig("the inputs hold no batch; give at least one, and one that can be read again")

    def first(self, num_examples: int) -> Inputs:
        """The first inputs, this many or all there are; a loader is read no further than that.

        >>> Evidence([torch.zeros(3, 2), torch.zeros(2, 2)]).first(4).shape
        torch.Size([4, 2])
        """
        if not self.is_streamed:
            return take(self.inputs, slice(num_examples))
        parts: list[Inputs] = []
        num_missing = num_examples
        for inputs, _ in self.batches():
            parts.append(take(inputs, slice(num_missing)))
            num_missing -= num_inputs(parts[-1])
            if num_missing <= 0:
                break
        return joined(parts)  # copied, so that no whole batch is held by a few of its inputs

    def in_memory(self) -> "Evidence":
        """The same with all examples in tensors, which methods that fit need; read once from a loader."""
        return self._gathered if self.is_streamed or (self.labels is None and self.teacher is not None) else self

    @cached_property
    def _gathered(self) -> "Evidence":
        parts = list(self.batches())
        labels = [labels for _, labels in parts if labels is not None]
        if labels and len(labels) < len(parts):
            raise InvalidConfig("some batches have labels and others have none; give labels with all, or with none")
        inputs = joined([inputs for inputs, _ in parts])
        return replace(self, inputs=inputs, labels=torch.cat(labels) if labels else None)

    def take(self, positions: Tensor) -> "Evidence":
        """The examples at these positions."""
        if self.mean_loss is not None:
            whole = self.mean_loss
            return replace(
                self,
                mean_loss=lambda network, chosen, generator: whole(network, positions[chosen], generator),
                num_examples=len(positions),
            )
        known = self.in_memory()
        labels = None if known.labels is None else known.labels[positions]
        score = self.score.at(positions) if isinstance(self.score, SubsetScore) else self.score
        return replace(known, inputs=take(known.inputs, positions), labels=labels, score=score)

    def without_labels(self) -> "Evidence":
        """The inputs alone; those of a loader stay there."""
        inputs = InputsOf(self.inputs) if self.is_streamed else self.inputs
        told: dict[str, Any] = dict.fromkeys(("labels", "teacher", "mean_loss", "num_examples", "score"))
        return replace(self, inputs=inputs, **told)

    def judge(self, network: nn.Module) -> Verdict:
        """Run a network on all examples in evaluation mode, batch by batch; its modes are restored.

        With `mean_loss`, examples are judged one at a time, because it returns only the mean of several.
        """
        with in_evaluation(network):
            if self.mean_loss is not None:
                every_one = torch.arange(len(self)).reshape(-1, 1)
                losses = [torch.as_tensor(self.mean_loss(network, one, None)).reshape(1) for one in every_one]
                return Verdict(finite(losses), None)
            return verdict_of(self.loss, ((self.run(network, inputs), labels) for inputs, labels in self.batches()))

    def loss_at(self, network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        """The mean loss at some positions, in the form that gradients are taken of (`Loss`)."""
        if self.mean_loss is not None:
            return self.mean_loss(network, positions, generator)
        known = self.in_memory()
        inputs, labels = take(known.inputs, positions), known.labels[positions]
        if self.augment and generator is not None and isinstance(inputs, Tensor):
            inputs = self.augment(inputs, generator)
            labels = labels if self.teacher is None else told_by(self.teacher, inputs, self.run)
        return mean_loss_of(self.loss, self.run(network, inputs), labels)

    def score_of(self, network: nn.Module) -> Score:
        """The score of a network: by the function given, else accuracy and loss on the examples."""
        if self.score is not None:
            return as_score(self.score(network), higher_is_better=self.higher_is_better)
        if self.mean_loss is not None:
            with torch.no_grad():
                value = float(self.mean_loss(network, torch.arange(len(self)), None))
            return Score(None, math.inf if math.isnan(value) else value, len(self))
        verdict = self.judge(network)
        accuracy = None if verdict.right is None else float(verdict.right.mean())
        return Score(accuracy, float(verdict.losses.mean()), len(verdict.losses))

    @property
    def as_score(self) -> Callable[[nn.Module], Score] | SubsetScore:
        """A score for searches, on all examples or, if possible, on some of them."""
        if isinstance(self.score, SubsetScore):
            return self.score
        if self.score is not None or self.mean_loss is not None:
            return self.score_of
        return SubsetScore(lambda network, positions: self.take(positions).score_of(network), len(self))


def some_inputs(inputs: object, verb: str, **more: Any) -> Evidence:
    """Inputs in any form, for a verb that cannot do without."""
    if inputs is None:
        raise InvalidConfig(f"{verb} needs inputs, and they are None; call {verb}(model, inputs, ...)")
    if callable(inputs) and not isinstance(inputs, Iterable | nn.Module):
        raise InvalidConfig(
            f"{verb} takes inputs, and got a function; call {verb}(model, inputs, labels, loss=...), or pass "
            "Evidence(mean_loss=function, num_examples=100) as inputs"
        )
    return Evidence.of(inputs, **more)


def labelled(inputs: object, labels: object, verb: str, **more: Any) -> Evidence:
    """Inputs and labels in any form, for a verb that cannot do without."""
    evidence = some_inputs(inputs, verb, labels=labels, **more)
    if not evidence.has_labels:
        raise InvalidConfig(f"{verb} needs labels, and there are none; call {verb}(model, inputs, labels, ...)")
    return evidence
