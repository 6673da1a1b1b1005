"""One forward pass that stops at every BatchNorm, lets a rule choose its statistics, and goes on with them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from quietnn.denoisers.structured import CONVOLUTIONS
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.makers import Makers

Inputs = Tensor | Mapping[str, Tensor]
"""What a model is called with: one tensor, or keyword tensors; examples run along dimension 0."""

BatchNorm = nn.modules.batchnorm._BatchNorm
"""The parent of BatchNorm1d, 2d and 3d and of SyncBatchNorm; torch has no public name for it."""


@dataclass(frozen=True)
class Feeder:
    """The call of a layer whose output goes straight into a BatchNorm.

    Attributes:
        name: of the layer.
        layer: a convolution or a linear layer.
        inputs: what this call was given.
        position: of this call among those of `Visit.called`.
    """

    name: str
    layer: nn.Module
    inputs: Tensor
    position: int


@dataclass(frozen=True)
class Visit:
    """One arrival at a BatchNorm.

    Attributes:
        name: of the BatchNorm.
        mean: its clean running mean, as the sender gave it.
        variance: its clean running variance.
        epsilon: what it adds to the variance.
        activations: what enters it, (images, channels, ...).
        feeder: the layer in front; None where that is a sum, a concatenation or a layer of another kind.
        called: the layers with parameters of their own that have been called so far, in order.
    """

    name: str
    mean: Tensor
    variance: Tensor
    epsilon: float
    activations: Tensor
    feeder: Feeder | None
    called: Sequence[nn.Module]


@dataclass(frozen=True)
class Arrival:
    """What came out of the pass.

    Attributes:
        output: the network's output, or its `logits` where it has some.
        feeder: the layer that made it.
        called: as in `Visit`.
    """

    output: Any
    feeder: Feeder | None
    called: Sequence[nn.Module]


Rule = Callable[[Visit], tuple[Tensor, Tensor]]
"""From an arrival to the mean and variance to use there."""


def visit_batch_norms(
    model: nn.Module, inputs: Inputs, rule: Rule, finish: Callable[[Arrival], None] | None = None
) -> None:
    """Set the statistics of every BatchNorm by a rule, in the order in which one forward pass meets them.

    A BatchNorm called several times in the pass (shared) gets the average of what the rule said at each call, as its
    running statistics are averages over its calls. `finish` is shown what comes out. Modes, counters and momentum
    stay as they were; if anything fails, the statistics do too.

    Raises:
        InvalidConfig: if there are fewer than two inputs, or no BatchNorm with running statistics is met.
        QuietnnError: if an input is not finite.
    """
    _check_inputs(inputs)
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        _Tour(rule).through(model, inputs, finish)
    finally:
        for module, training in modes.items():
            module.training = training


class _Tour:
    """The hooks of one pass and what they remember."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._called: list[nn.Module] = []
        self._makers: Makers[Feeder] = Makers()
        self._clean: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._num_calls: dict[nn.Module, int] = {}

    @torch.no_grad()
    def through(self, model: nn.Module, inputs: Inputs, finish: Callable[[Arrival], None] | None) -> None:
        """Run the model once; statistics are put back if anything fails."""
        handles = [self._hook(name, module) for name, module in model.named_modules()]
        try:
            output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
            if not self._num_calls:
                raise InvalidConfig(
                    "this network has no BatchNorm with running statistics, so there is nothing to calibrate: "
                    "LayerNorm, GroupNorm and the like take their statistics from each input afresh"
                )
            if finish is not None:
                logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
                feeder = self._feeder(logits) if isinstance(logits, Tensor) else None
                finish(Arrival(logits, feeder, self._called))
        except BaseException:
            for module, (mean, variance) in self._clean.items():
                _write(module, mean, variance)
            raise
        finally:
            for handle in handles:
                if handle is not None:
                    handle.remove()

    def _hook(self, name: str, module: nn.Module) -> RemovableHandle | None:
        if isinstance(module, BatchNorm):
            return module.register_forward_pre_hook(partial(self._at_batch_norm, name))
        if next(module.parameters(recurse=False), None) is not None:
            return module.register_forward_hook(partial(self._at_layer, name))
        return None

    def _at_layer(self, name: str, layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        # Kinds are compared exactly: a child class may do something else with its weights.
        if type(layer) in (*CONVOLUTIONS, nn.Linear) and args and isinstance(output, Tensor):
            self._makers.remember(output, Feeder(name, layer, args[0], len(self._called)))
        self._called.append(layer)

    def _at_batch_norm(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(module, BatchNorm)
        if module.running_mean is None or module.running_var is None:
            return
        clean = self._clean.setdefault(module, (module.running_mean.clone(), module.running_var.clone()))
        visit = Visit(name, *clean, module.eps, args[0], self._feeder(args[0]), self._called)
        mean, variance = self._rule(visit)
        num_calls = self._num_calls[module] = self._num_calls.get(module, 0) + 1
        if num_calls > 1:  # in this form an average of equal values is that value, to the last bit
            mean = module.running_mean.double() + (mean - module.running_mean.double()) / num_calls
            variance = module.running_var.double() + (variance - module.running_var.double()) / num_calls
        _write(module, mean, variance)

    def _feeder(self, activations: Tensor) -> Feeder | None:
        """The layer that made this very tensor, if nothing has written into it since."""
        feeder = self._makers.of(activations)
        # BatchNorm counts dimension 1 as channels; a linear layer makes that its features only in two dimensions.
        is_foreign = feeder is not None and isinstance(feeder.layer, nn.Linear) and activations.dim() != 2
        return None if is_foreign else feeder


def _write(module: nn.Module, mean: Tensor, variance: Tensor) -> None:
    module.get_buffer("running_mean").copy_(mean)
    module.get_buffer("running_var").copy_(variance)


def _check_inputs(inputs: Inputs) -> None:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    num_inputs = min((len(tensor) if tensor.dim() else 0 for tensor in tensors), default=0)
    if num_inputs < 2:
        raise InvalidConfig(
            f"calibration needs at least 2 inputs to tell how much they differ, but got {num_inputs}; "
            "about 100 unlabelled ones are a good number"
        )
    for tensor in tensors:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise QuietnnError("the inputs hold values that are not finite; repair or leave out those examples")
