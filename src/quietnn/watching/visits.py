"""Forward passes that stop at every BatchNorm, let a rule choose its statistics, and go on with them.

A few inputs go through the network once. More of them, or those of a loader, come in batches, and every BatchNorm takes
a pass of its own over all batches, up to where it stands: only then are the statistics in front of it final.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, num_inputs
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.watching.makers import STATISTICS, eagerly, undisturbed
from quietnn.watching.moments import CONCENTRATION_IMAGES
from quietnn.watching.samples import HeadSample, Visit
from quietnn.watching.survey import BatchNorm, Run, Survey, survey

Rule = Callable[[Visit], tuple[Tensor, Tensor]]
"""From an arrival to the mean and variance to use there."""

Finish = Callable[[HeadSample], None]


def visit_batch_norms(
    model: nn.Module, evidence: Evidence, rule: Rule, finish: Finish | None = None
) -> tuple[Survey, float]:
    """Set the statistics of every BatchNorm by a rule, in the order in which a forward pass meets them.

    Up to `evidence.batch_size` inputs go through the network at once. Of more, one batch and the moments of one
    layer are in memory at a time. Those that are shared are shown to no rule and keep their statistics, see `Survey`.
    `finish` is shown what comes out. Modes, counters, momentum and other buffers stay as they were; if anything fails,
    the statistics do too.

    Returns the survey, and the cost in forward passes over all inputs. One that ends at a BatchNorm counts as the share
    of the network's layers that it ran.
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
    clean: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def choose(module: nn.Module, visit: Visit) -> None:
        clean[module] = visit.mean, visit.variance
        _write(module, *rule(visit))

    with undisturbed(model), eagerly(model), torch.no_grad():
        try:
            if is_whole:
                return found, _at_once(model, first, found, choose, finish)
            return found, _InBatches(model, evidence, found).visit(first, choose, finish)
        except BaseException:
            for module, statistics in clean.items():
                _write(module, *statistics)
            raise


def _write(module: nn.Module, *values: Tensor) -> None:
    for name, value in zip(STATISTICS, values, strict=True):
        module.get_buffer(name).copy_(value)


_Choose = Callable[[nn.Module, Visit], None]


def _at_once(model: nn.Module, inputs: Inputs, found: Survey, choose: _Choose, finish: Finish | None) -> float:
    """One pass over all inputs."""
    done = {model.get_submodule(name) for name in found.shared}

    def at_norm(run: Run, name: str, module: BatchNorm, activations: Tensor) -> None:
        if module not in done:
            done.add(module)
            choose(module, Visit(run, name, module, activations))

    run = Run(at_norm)
    output = run.through(model, inputs)
    if finish is not None:
        finish(HeadSample(run, output))
    return 1.0


class _InBatches:
    """A pass over all batches for every BatchNorm, up to where it stands."""

    def __init__(self, model: nn.Module, evidence: Evidence, found: Survey) -> None:
        self._model, self._evidence, self._found = model, evidence, found
        self._num_inputs = 0
        self._num_run = 0.0
        """Inputs that were run so far, each times the share of the layers it went through."""

    def visit(self, first: Inputs, choose: _Choose, finish: Finish | None) -> float:
        """Go through them in turn; `first` are the same first inputs for each, also where a loader shuffles."""
        for name in self._found.places:
            visit = None if name in self._found.shared else self._up_to(name, first)
            if visit is not None:
                arrivals = (self._up_to(name, inputs) for inputs in self._batches())
                choose(self._model.get_submodule(name), visit.over(part for part in arrivals if part is not None))
        if finish is not None:
            finish(HeadSample.merged(self._to_the_end(inputs) for inputs in self._batches()))
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

        def at_norm(run: Run, name: str, module: BatchNorm, activations: Tensor) -> None:
            if module is target:
                raise _Stop(Visit(run, name, module, activations))

        try:
            Run(at_norm).through(self._model, inputs)
        except _Stop as stop:
            return stop.visit
        return None

    def _to_the_end(self, inputs: Inputs) -> HeadSample:
        self._num_run += num_inputs(inputs)
        run = Run()
        return HeadSample(run, run.through(self._model, inputs))


class _Stop(BaseException):
    """Ends a pass where it has seen enough; no network is meant to catch it."""

    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self.visit = visit
