"""A task is a model, its weights, data to tune on, data to test on, and a metric."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import in_evaluation, outputs_of, take
from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import BATCH_SIZE, Evidence
from quietnn.losses import Losses, cross_entropy
from quietnn.score import Score, SubsetScore

Inputs = Tensor | dict[str, Tensor]
"""What a model is called with: one tensor, or (transformers) keyword tensors. Examples run along dimension 0."""


@dataclass(frozen=True)
class Examples:
    """Inputs ready for the model, with their labels.

    Attributes:
        inputs: a tensor, or a dict of tensors passed by keyword, whose first dimension is the example.
        labels: class numbers, int64, one per example, or one per token of it.

    >>> examples = Examples(inputs=torch.zeros(3, 2), labels=torch.tensor([0, 1, 1]))
    >>> len(examples), examples.take(torch.tensor([2, 0])).labels.tolist()
    (3, [1, 0])
    """

    inputs: Inputs
    labels: Tensor

    def __post_init__(self) -> None:
        """Refuse labels that do not belong to the inputs."""
        remedy = "give tensors: Examples(torch.as_tensor(inputs), torch.as_tensor(labels))"
        check_is(self.inputs, (Tensor, dict), "inputs", remedy)
        check_is(self.labels, Tensor, "labels", remedy)
        tensors = self.inputs.values() if isinstance(self.inputs, dict) else (self.inputs,)
        if self.labels.dtype != torch.int64 or self.labels.dim() not in (1, 2):
            raise InvalidConfig(
                f"labels must be an int64 tensor of class numbers, not {self.labels.dtype} of shape "
                f"{tuple(self.labels.shape)}; try labels.long().flatten()"
            )
        for tensor in tensors:
            if len(tensor) != len(self.labels):
                raise InvalidConfig(f"{len(tensor)} inputs do not go with {len(self.labels)} labels; give one for each")

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.labels)

    def take(self, indices: Tensor | slice) -> "Examples":
        """The examples at these positions, in this order."""
        return Examples(cast(Inputs, take(self.inputs, indices)), self.labels[indices])

    def sample(self, num_examples: int | None, *, seed: int = 0, first: int = 0) -> "Examples":
        """As many of them, by the positions of `sample`; test subsets are those of seed 0."""
        return self.take(sample(len(self), num_examples, seed=seed, first=first))

    def batches(self, batch_size: int) -> Iterator["Examples"]:
        """The examples in order, `batch_size` at a time."""
        for start in range(0, len(self), batch_size):
            yield self.take(slice(start, start + batch_size))


def score_batches(model: nn.Module, batches: Iterable[Examples]) -> Score:
    """Accuracy and mean cross-entropy of a classifier in evaluation mode; the model's mode is restored.

    A loss that is not a number (noise can overflow a network) counts as infinite, so it never wins a tie.
    """
    found: list[Tensor] = []
    total_loss = 0.0
    with in_evaluation(model):
        for batch in batches:
            logits = outputs_of(model, batch.inputs)
            found.append(logits.argmax(dim=1) == batch.labels)
            total_loss += float(functional.cross_entropy(logits.double(), batch.labels, reduction="sum"))
    if not found:
        raise InvalidConfig("there are no examples to evaluate on; ask for at least one")
    right = torch.cat(found)
    loss = math.inf if math.isnan(total_loss) else total_loss / len(right)
    return Score(int(right.sum()) / len(right), loss, len(right), right=right)


def evaluate_classifier(model: nn.Module, examples: Examples, *, batch_size: int = 250) -> Score:
    """Score a classifier on examples, `batch_size` at a time."""
    return score_batches(model, examples.batches(batch_size))


_SCORE = "evaluate returns Score(accuracy, loss, num_examples), or Score(None, perplexity, num_examples, perplexity)"


@dataclass(frozen=True)
class Task:
    """Everything an experiment needs to know about a network and its data.

    Attributes:
        name: what the records call it.
        load_model: makes a fresh module with the clean weights, in evaluation mode.
        tuning_examples: a function of `(num_examples, seed)` that returns labelled examples to repair by; never test
            data. For one seed, a larger number includes the examples of a smaller one.
        test_examples: a function that returns all test examples for None, and a fixed subset of N for N. If an
            experiment sets `first_test_position`, a second argument says how many examples of that order to skip.
        evaluate: scores a model on examples.
        augment: a function of `(inputs, generator)` that returns random variants of the inputs with the same labels.
        run: calls a model on inputs.
        loss: a function of `(outputs, labels)` that returns one loss per example; by default cross-entropy.
        batch_size: examples that go through a network at once.

    >>> examples = Examples(torch.rand(20, 4), torch.arange(20) % 2)
    >>> task = Task("mine", lambda: nn.Linear(4, 2), lambda num, seed: examples.take(slice(num)), lambda num: examples)
    >>> len(task.evidence(task.test_examples(None)))
    20
    """

    name: str
    load_model: Callable[[], nn.Module]
    tuning_examples: Callable[[int, int], Examples]
    test_examples: Callable[..., Examples]
    evaluate: Callable[[nn.Module, Examples], Score] = evaluate_classifier
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    run: Callable[[nn.Module, Any], Tensor] = outputs_of
    loss: Losses = cross_entropy
    batch_size: int = BATCH_SIZE

    def __post_init__(self) -> None:
        """Refuse what is not made by a call: a network or examples themselves."""
        for name in ("load_model", "tuning_examples", "test_examples", "evaluate"):
            value = getattr(self, name)
            if isinstance(value, nn.Module) or not callable(value):
                raise InvalidConfig(f"{name} is a {type(value).__name__}; give a function: {name}=lambda *_: ...")

    def score_of(self, network: nn.Module, examples: Examples) -> Score:
        """The score of a network by `evaluate`; an error if that is not a `Score`."""
        score = self.evaluate(network, examples)
        check_is(score, Score, f"the score of {self.name}", _SCORE)
        return score

    def tested_on(self, num_examples: int | None, first: int) -> Examples:
        """Test examples from a position on; an error if the task cannot begin there."""
        if first == 0:
            return self.test_examples(num_examples)
        if len(signature(self.test_examples).parameters) < 2:
            raise InvalidConfig(
                f"first_test_position is {first}, and {self.name} cannot begin there; leave it out, or let the task's "
                "test_examples(num_examples, first=0) leave out so many"
            )
        return self.test_examples(num_examples, first)

    def evidence(self, examples: Examples) -> Evidence:
        """Examples of the task as a repair takes them, scored as the task scores."""

        def score(network: nn.Module, positions: Tensor) -> Score:
            return self.score_of(network, examples if len(positions) == len(examples) else examples.take(positions))

        return Evidence(
            examples.inputs,
            examples.labels,
            score=SubsetScore(score, len(examples)),
            augment=self.augment,
            run=self.run,
            loss=self.loss,
            batch_size=self.batch_size,
        )


def sample(num_total: int, num_examples: int | None, *, seed: int, first: int = 0) -> Tensor:
    """The first positions of a permutation fixed by the seed, so larger samples contain smaller ones.

    None stands for all positions in their own order. With `first`, the sample begins that far into the permutation: it
    has nothing in common with the first so many.

    >>> sample(4, None, seed=0).tolist()
    [0, 1, 2, 3]
    >>> set(sample(100, 5, seed=1).tolist()) <= set(sample(100, 9, seed=1).tolist())
    True
    >>> set(sample(100, 5, seed=1).tolist()) & set(sample(100, 9, seed=1, first=5).tolist())
    set()
    """
    if not 0 <= first < num_total:
        raise InvalidConfig(f"asked to leave out the first {first} examples of {num_total}; give 0 to {num_total - 1}")
    if num_examples is None and first == 0:
        return torch.arange(num_total)
    left = num_total - first
    wanted = left if num_examples is None else num_examples
    if not 1 <= wanted <= left:
        after = f" after the first {first}" if first else ""
        raise InvalidConfig(f"asked for {wanted} examples{after}, there are {left}; ask for 1 to {left}")
    return torch.randperm(num_total, generator=torch.Generator().manual_seed(seed))[first : first + wanted]
