"""Forward passes that stop at every BatchNorm, let a rule choose its statistics, and go on with them.

A few inputs go through the network once. More of them, or those of a loader, come in batches, and every BatchNorm takes
a pass of its own over all batches, up to where it stands: only then are the statistics in front of it final.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from quietnn.batches import Inputs, call, logits_of, num_inputs
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.watching.makers import STATISTICS, Makers, eagerly, undisturbed
from quietnn.watching.moments import CONCENTRATION_IMAGES
from quietnn.watching.samples import HeadSample, Sample
from quietnn.watching.survey import CONVOLUTIONS, BatchNorm, Survey, given, has_statistics, survey


@dataclass(frozen=True)
class Feeder:
    """The call of a layer whose output goes straight into a BatchNorm.

    Attributes:
        name: of the layer.
        layer: a convolution or a linear layer.
        position: of this call among those of `Visit.called`.
    """

    name: str
    layer: nn.Module
    position: int


@dataclass(frozen=True)
class Visit:
    """One arrival at a BatchNorm.

    Attributes:
        name: of the BatchNorm.
        mean: its clean running mean, as the sender gave it.
        variance: its clean running variance.
        epsilon: what it adds to the variance.
        sample: what enters it, and what the layer in front was given.
        feeder: the layer in front; None where that is a sum, a concatenation or a layer of another kind.
        called: the layers with parameters of their own that have been called so far, in order.
    """

    name: str
    mean: Tensor
    variance: Tensor
    epsilon: float
    sample: Sample
    feeder: Feeder | None
    called: Sequence[nn.Module]


@dataclass(frozen=True)
class Arrival:
    """What came out of the network, or the `logits` where it has some.

    Attributes:
        sample: of the outputs and of what the last layer was given.
        feeder: the layer that made them.
        called: as in `Visit`.
    """

    sample: HeadSample
    feeder: Feeder | None
    called: Sequence[nn.Module]


@dataclass(frozen=True)
class Visited:
    """What the visits came to.

    Attributes:
        shared: names of the BatchNorms that are called more than once and were left alone.
        passes: their cost in forward passes over all inputs. One that ends at a BatchNorm counts as the share of the
            network's layers that it ran.
    """

    shared: tuple[str, ...]
    passes: float


Rule = Callable[[Visit], tuple[Tensor, Tensor]]
"""From an arrival to the mean and variance to use there."""

Finish = Callable[[Arrival], None]


def visit_batch_norms(model: nn.Module, evidence: Evidence, rule: Rule, finish: Finish | None = None) -> Visited:
    """Set the statistics of every BatchNorm by a rule, in the order in which a forward pass meets them.

    Up to `evidence.batch_size` inputs go through the network at once. Of more, one batch and the moments of one
    layer are in memory at a time. Those that are shared are shown to no rule and keep their statistics, see `Survey`.
    `finish` is shown what comes out. Modes, counters, momentum and other buffers stay as they were; if anything fails,
    the statistics do too.

    Raises:
        InvalidConfig: if inputs are fewer than two, or no BatchNorm with running statistics is met.
        QuietnnError: if an input is not finite.
    """
    first = evidence.first(evidence.batch_size + 1)
    is_whole = num_inputs(first) <= evidence.batch_size
    if not is_whole:
        first = evidence.first(CONCENTRATION_IMAGES)
    found = survey(model, first)
    if not found.places:
        raise InvalidConfig(
            "this network has no BatchNorm with running statistics, so there is nothing to calibrate: "
            "LayerNorm, GroupNorm and the like take their statistics from each input afresh"
        )
    with undisturbed(model), eagerly(model), torch.no_grad(), _Statistics.kept_on_failure() as statistics:
        if is_whole:
            passes = _at_once(model, first, found, statistics, rule, finish)
        else:
            passes = _InBatches(model, evidence, found, statistics).visit(first, rule, finish)
    return Visited(found.shared, passes)


class _Statistics:
    """The statistics that have been replaced, as they were."""

    def __init__(self) -> None:
        self.clean: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    @classmethod
    @contextmanager
    def kept_on_failure(cls) -> Iterator["_Statistics"]:
        statistics = cls()
        try:
            yield statistics
        except BaseException:
            for module, clean in statistics.clean.items():
                _write(module, *clean)
            raise

    def replace(self, module: nn.Module, visit: Visit, rule: Rule) -> None:
        self.clean[module] = visit.mean, visit.variance
        _write(module, *rule(visit))


def _write(module: nn.Module, *values: Tensor) -> None:
    for name, value in zip(STATISTICS, values, strict=True):
        module.get_buffer(name).copy_(value)


def _at_once(
    model: nn.Module, inputs: Inputs, found: Survey, statistics: _Statistics, rule: Rule, finish: Finish | None
) -> float:
    """One pass over all inputs."""
    shared = {model.get_submodule(name) for name in found.shared}

    def at_norm(run: _Run, name: str, module: BatchNorm, activations: Tensor) -> None:
        if module not in shared and module not in statistics.clean:
            statistics.replace(module, run.visit(name, module, activations), rule)

    run = _Run(at_norm)
    output = run.through(model, inputs)
    if finish is not None:
        finish(run.arrival(output))
    return 1.0


class _InBatches:
    """A pass over all batches for every BatchNorm, up to where it stands."""

    def __init__(self, model: nn.Module, evidence: Evidence, found: Survey, statistics: _Statistics) -> None:
        self._model, self._evidence, self._found, self._statistics = model, evidence, found, statistics
        self._num_inputs = 0
        self._num_run = 0.0
        """Inputs that were run so far, each times the share of the layers it went through."""

    def visit(self, first: Inputs, rule: Rule, finish: Finish | None) -> float:
        """Go through them in turn; `first` are the same first inputs for each, also where a loader shuffles."""
        for name in self._found.places:
            visit = None if name in self._found.shared else self._up_to(name, first)
            if visit is not None:
                arrivals = (self._up_to(name, inputs) for inputs in self._batches())
                sample = Sample.merged(visit.sample, (part.sample for part in arrivals if part is not None))
                self._statistics.replace(self._model.get_submodule(name), replace(visit, sample=sample), rule)
        if finish is not None:
            finish(reduce(_both, (self._to_the_end(inputs) for inputs in self._batches())))
        return self._num_run / max(self._num_inputs, 1)

    def _batches(self) -> Iterator[Inputs]:
        num_seen = 0
        for inputs, _ in self._evidence.batches():
            yield inputs
            num_seen += num_inputs(inputs)
        self._num_inputs = num_seen

    def _up_to(self, name: str, inputs: Inputs) -> Visit | None:
        """Run the network up to a BatchNorm; None where it does not get there."""
        target = self._model.get_submodule(name)
        self._num_run += num_inputs(inputs) * self._found.places[name]

        def at_norm(run: _Run, name: str, module: BatchNorm, activations: Tensor) -> None:
            if module is target:
                raise _Stop(run.visit(name, module, activations))

        try:
            _Run(at_norm).through(self._model, inputs)
        except _Stop as stop:
            return stop.visit
        return None

    def _to_the_end(self, inputs: Inputs) -> Arrival:
        self._num_run += num_inputs(inputs)
        run = _Run(lambda *_: None)
        return run.arrival(run.through(self._model, inputs))


def _both(before: Arrival, after: Arrival) -> Arrival:
    return replace(after, sample=HeadSample.merged((before.sample, after.sample)))


class _Stop(BaseException):
    """Ends a pass where it has seen enough; no network is meant to catch it."""

    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self.visit = visit


class _Run:
    """The hooks of one pass and what they remember."""

    def __init__(self, at_norm: "Callable[[_Run, str, BatchNorm, Tensor], None]") -> None:
        self._at_norm = at_norm
        self._called: list[nn.Module] = []
        self._makers: Makers[tuple[Feeder, Tensor]] = Makers()

    def through(self, model: nn.Module, inputs: Inputs) -> Any:
        """Run the model once."""
        handles = [self._hook(name, module) for name, module in model.named_modules()]
        try:
            return call(model, inputs)
        finally:
            for handle in handles:
                if handle is not None:
                    handle.remove()

    def visit(self, name: str, module: BatchNorm, activations: Tensor) -> Visit:
        """The arrival of activations at a BatchNorm."""
        mean, variance = (module.get_buffer(statistic).clone() for statistic in STATISTICS)
        feeder, inputs = self._feeder(activations)
        layer = feeder.layer if feeder else None
        sample = Sample(activations, about=mean, epsilon=module.eps, layer=layer, inputs=inputs)
        return Visit(name, mean, variance, module.eps, sample, feeder, self._called)

    def arrival(self, output: object) -> Arrival:
        """What the model has returned, at the end."""
        logits = logits_of(output)
        feeder, inputs = self._feeder(logits)
        sample = HeadSample(logits, layer=feeder.layer if feeder else None, inputs=inputs)
        return Arrival(sample, feeder, self._called)

    def _hook(self, name: str, module: nn.Module) -> RemovableHandle | None:
        if isinstance(module, BatchNorm):
            return module.register_forward_pre_hook(partial(self._before_norm, name), with_kwargs=True)
        if next(module.parameters(recurse=False), None) is not None:
            return module.register_forward_hook(partial(self._after_layer, name), with_kwargs=True)
        return None

    def _after_layer(
        self, name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        # Kinds are compared exactly: a child class may do something else with its weights.
        if type(layer) in (*CONVOLUTIONS, nn.Linear) and isinstance(output, Tensor):
            self._makers.remember(output, (Feeder(name, layer, len(self._called)), given(args, kwargs)))
        self._called.append(layer)

    def _before_norm(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(module, BatchNorm)
        if has_statistics(module):
            self._at_norm(self, name, module, given(args, kwargs))

    def _feeder(self, activations: Tensor) -> tuple[Feeder | None, Tensor | None]:
        """The layer that made this very tensor, if nothing has written into it since, and what it was given."""
        feeder, inputs = self._makers.of(activations) or (None, None)
        # BatchNorm counts dimension 1 as channels; a linear layer makes that its features only in two dimensions.
        is_foreign = feeder is not None and isinstance(feeder.layer, nn.Linear) and activations.dim() != 2
        return (None, None) if is_foreign else (feeder, inputs)
