"""BatchNorms matched to those of the clean network, which whoever programmed a chip has: gain and shift by channel.

Let `z` be what enters a channel of a BatchNorm on the noisy network, `a` what the clean network makes there of the same
inputs, and `rho` their correlation over inputs and places. What replaces `a` is `alpha z + beta` with

    alpha = sqrt(rho) std(a) / std(z)        beta = mean(a) - alpha mean(z)

Least squares has `rho` in place of its root, and equal variances have 1: the one makes networks fade under strong
noise, the other passes all noise on. Layer by layer, each on inputs that are matched already, this takes two forward
passes, and neither labels nor gradients. The outputs of a linear head are matched by least squares. All of it is
digital: no weight changes. An adapter regresses what least squares leave on the inputs of the layer in front, at low
rank (docs/how-it-works/teacher.md).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, call, logits_of
from quietnn.errors import InvalidConfig
from quietnn.evidence import some_inputs
from quietnn.observation import Observation, observe, of_tensor
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.low_rank import outputs, regress, takes
from quietnn.repairs.beside.beside import beside_of
from quietnn.repairs.beside.part import Part, output_axes
from quietnn.repairs.beside.where import Where
from quietnn.targets import with_weights
from quietnn.watching.batch_moments import wide
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.watching.survey import BatchNorm, Feeder, Run, has_statistics, survey
from quietnn.weights import Weights

_TINY = 1e-30
"""Below every variance."""

_ROUNDING = 16
"""Rounding errors of the mean that a channel has to vary by; one that never varies gets the mean alone."""


@torch.inference_mode(False)
def match(
    what: object,
    inputs: object,
    *,
    teacher: nn.Module | None = None,
    trainable: str = "digital",
    rank: int | None = None,
    budget: float | None = None,
) -> Repaired:
    """Give every BatchNorm, and the head, the gain and shift that bring outputs nearest to those of the clean network.

    A BatchNorm that is called more than once keeps what it has. One without gains and biases gets other statistics.

    Args:
        what: the network as received.
        inputs: at least two inputs of the kind the network is for, about 100 if you can, in any form of `Evidence`. No
            more are used than run at once; what the clean network makes of these at all BatchNorms is in memory.
        teacher: the clean network, with layers of the same names; or that of the `Evidence`.
        trainable: what may change, `"digital"`, or `"adapter"` for a low-rank addition beside linear layers and
            two-dimensional convolutions whose outputs go straight into a BatchNorm, as well.
        rank: of the additions; 8, or less in a small network, when not given.
        budget: in place of a rank, the share of the network's parameters that may stand beside it.

    Returns:
        The network. In its details, `beside` has what stands beside the weights, and `alike` the mean correlation of
        `z` and `a` at each BatchNorm, before any addition.

    Raises:
        InvalidConfig: if there is no teacher, or one of another architecture.

    >>> clean = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    >>> noisy = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    >>> torch.allclose(match(noisy, torch.eye(2), teacher=clean).model(torch.eye(2)), clean(torch.eye(2)), atol=1e-5)
    True
    """
    observation, where = observe(what), Where(trainable, rank, budget)
    where.check(observation.received, observation.weights)
    if not where.weights_stay:
        raise InvalidConfig("matching leaves weights as they are; give trainable='digital' or trainable='adapter'")
    evidence = some_inputs(inputs, "match", teacher=teacher)
    if evidence.teacher is None:
        raise InvalidConfig(
            "matching needs the clean network: match(model, inputs, teacher=clean); without one use calibrate"
        )
    known = evidence.without_labels().in_memory()
    size = min(len(known), known.batch_size)
    few = known.take(torch.arange(size) * len(known) // size).inputs
    found = survey(observation.model, few)
    if not found.places:
        raise InvalidConfig("this network has no BatchNorm with running statistics, so there is nothing to match")
    if observation.noise_variance is not None and observation.mean_noise_variance == 0:
        same = with_weights(observation.model, {})
        return Repaired(same, "matched", 0.0, {"beside": beside_of(observation, same, {}), "alike": {}})
    names = [name for name in found.places if name not in found.shared]
    taught = _made_at(names, observation, evidence.teacher, few)
    arrived, undone = _not_undone(observation, () if found.shared else found.feeders)
    network, parts = _merged(arrived.model, arrived.weights, undone), dict(undone)
    passed = _in_turn(network, few, taught, parts, regressed=where.trainable == "adapter")
    if where.trainable == "adapter":
        ranks = where.ranks(
            {name: values for name, values in passed.worth.items() if name in arrived.weights},
            arrived.weights,
            num_parameters=sum(parameter.numel() for parameter in network.parameters()),
            spent=beside_of(arrived, network, parts).num_parameters,
        )
        network, parts = _merged(arrived.model, arrived.weights, undone), dict(undone)
        _in_turn(network, few, taught, parts, ranks=ranks)
    finished = _merged(network, arrived.weights, parts)
    passes = (3.0 if where.trainable == "adapter" else 2.0) * size / len(known)
    name = "matched_adapter" if where.trainable == "adapter" else "matched"
    return Repaired(finished, name, passes, {"beside": beside_of(arrived, finished, parts), "alike": passed.alike})


def _not_undone(
    observation: Observation[Any, Any], feeders: Collection[str]
) -> tuple[Observation[Any, Any], dict[str, Part]]:
    """What arrived with its gain, which a BatchNorm behind undoes, and what undoes it beside all other matrices."""
    first = observation.as_received or observation
    axes = output_axes(first.model)
    parts = {
        name: Part().behind(of_tensor(first.gain, name), of_tensor(first.offset, name), weight, axes[name])
        for name, weight in first.weights.items()
        if weight.dim() > 1 and name.removesuffix(".weight") not in feeders
    }
    there = {name: part for name, part in parts.items() if part.scale is not None or part.low_rank is not None}
    return replace(first, gain=1.0, offset=0.0), there


def _merged(network: nn.Module, received: Weights, parts: Mapping[str, Part]) -> nn.Module:
    return with_weights(network, {name: part.applied(received[name]) for name, part in parts.items()})


@dataclass(frozen=True)
class _Taught:
    """What the clean network makes of the inputs, behind each BatchNorm and in the end; and what is noisy."""

    behind: Mapping[str, Tensor]
    output: Tensor
    noisy: Collection[str]


@dataclass(frozen=True)
class _Passed:
    """What the directions of each addition would be worth, and how alike arrivals and targets are."""

    worth: dict[str, Tensor] = field(default_factory=dict)
    alike: dict[str, float] = field(default_factory=dict)


def _in_turn(
    network: nn.Module,
    inputs: Inputs,
    taught: _Taught,
    parts: dict[str, Part],
    *,
    regressed: bool = False,
    ranks: Mapping[str, int] | None = None,
) -> _Passed:
    """Match every BatchNorm in the order of a pass, in place, and the head; `parts` gets what stands beside matrices.

    With `ranks` that is an addition in front of BatchNorms, too. What it would be worth is found if `regressed`.
    """
    passed = _Passed()

    def at_norm(run: Run, name: str, module: BatchNorm, arriving: Tensor) -> None:
        if name not in taught.behind or name in passed.alike:
            return
        found = _Regressed.of(arriving, taught.behind[name])
        passed.alike[name] = found.alike
        feeder, given = run.feeder(arriving)
        if feeder is not None and given is not None and takes(feeder.layer):
            weight = f"{feeder.name}.weight"
            rank = 0 if ranks is None else ranks.get(weight, 0)
            if regressed or rank:
                directions = regress(feeder.layer, given, found.errors)
                passed.worth[weight] = directions.values / found.power.sum().sqrt().clamp_min(_TINY)
            if rank:
                up, down = directions.first(rank)
                up = up / torch.where(found.factor == 0, torch.inf, found.factor)[:, None]
                parts[weight] = Part(low_rank=(up, down))
                arriving.add_(outputs(feeder.layer, given, up, down))  # as if the weights had been these
                found = _Regressed.of(arriving, taught.behind[name])
        found.write(module)

    with undisturbed(network), eagerly(network), torch.no_grad():
        run = Run(at_norm)
        made = logits_of(run.through(network, inputs))
        feeder = run.feeder(made)[0]
        is_head = made.dim() == 2 and made.shape == taught.output.shape
        if is_head and feeder is not None and f"{feeder.name}.weight" in taught.noisy:
            _match_head(feeder, _Regressed.of(made, taught.output), parts)
    return passed


def _match_head(feeder: Feeder, found: "_Regressed", parts: dict[str, Part]) -> None:
    """A factor and a bias for each output: what BatchNorms that hold noise down have made smaller is undone."""
    head, weight = feeder.layer, f"{feeder.name}.weight"
    if not isinstance(head, nn.Linear) or head.bias is None:
        return
    before, factor = parts.get(weight, Part()), found.factor[:, None]
    low_rank = None if before.low_rank is None else (factor * before.low_rank[0], before.low_rank[1])
    parts[weight] = Part(factor if before.scale is None else factor * before.scale, low_rank)
    head.bias.copy_(found.goal - found.factor * (found.mean - head.bias))


def has_same_norms(model: nn.Module, teacher: nn.Module | None) -> bool:
    """Whether a teacher has the BatchNorms of a network, by name and channels.

    >>> has_same_norms(nn.Sequential(nn.BatchNorm1d(2)), nn.Sequential(nn.BatchNorm1d(3)))
    False
    """
    if teacher is None:
        return False
    own, others = (
        {name: layer.num_features for name, layer in network.named_modules() if has_statistics(layer)}
        for network in (model, teacher)
    )
    return bool(own) and all(others.get(name) == channels for name, channels in own.items())


def _made_at(names: list[str], observation: Observation[Any, Any], teacher: nn.Module, inputs: Inputs) -> _Taught:
    """What a teacher makes of inputs."""
    if not has_same_norms(observation.model, teacher):
        raise InvalidConfig(
            "the teacher does not have the BatchNorms of this network; give the clean network of the same "
            "architecture, or fit to the outputs of another: repair(model, inputs, teacher=other, method='posterior')"
        )
    made: dict[str, Tensor] = {}
    hooks = [
        teacher.get_submodule(name).register_forward_hook(
            lambda module, given, output, name=name: made.__setitem__(name, output.detach().clone())
        )
        for name in names
    ]
    try:
        with undisturbed(teacher), eagerly(teacher), torch.no_grad():
            output = logits_of(call(teacher, inputs)).detach()
    finally:
        for hook in hooks:
            hook.remove()
    return _Taught(made, output, observation.weights)


@dataclass(frozen=True)
class _Regressed:
    """A target regressed on what arrives, channel by channel."""

    mean: Tensor
    variance: Tensor
    goal: Tensor  # the mean of the target
    power: Tensor  # its variance
    factor: Tensor  # by least squares
    gain: Tensor  # half-way to that of equal variances
    errors: Tensor
    alike: float

    @classmethod
    def of(cls, arriving: Tensor, target: Tensor) -> "_Regressed":
        others = [place for place in range(arriving.dim()) if place != 1]
        shape = [1 if place in others else -1 for place in range(arriving.dim())]
        arriving, target = wide(arriving), wide(target)
        mean, goal = arriving.mean(others), target.mean(others)
        centred, wanted = arriving - mean.view(shape), target - goal.view(shape)
        variance, power = centred.square().mean(others), wanted.square().mean(others)
        varies = variance.sqrt() > _ROUNDING * torch.finfo(variance.dtype).eps * mean.abs()
        covariance = (centred * wanted).mean(others) * varies
        factor = covariance / variance.clamp_min(_TINY)
        alike = covariance / (variance * power).sqrt().clamp_min(_TINY)
        gain = (power / variance.clamp_min(_TINY) * alike.abs()).sqrt() * alike.sign()
        errors = wanted - factor.view(shape) * centred
        return cls(mean, variance, goal, power, factor, gain, errors, float(alike.mean()))

    def write(self, module: BatchNorm) -> None:
        """Let a BatchNorm do it."""
        assert module.running_mean is not None
        assert module.running_var is not None
        if module.affine:
            module.running_mean.copy_(self.mean)
            module.running_var.copy_(self.variance)
            module.weight.copy_(self.gain * (self.variance + module.eps).sqrt())
            module.bias.copy_(self.goal)
            return
        # Statistics divide, so that the factor has to be positive.
        gain = torch.where(self.gain > 0, self.gain, (self.variance + module.eps).rsqrt())
        module.running_mean.copy_(self.mean - self.goal / gain)
        module.running_var.copy_((gain.pow(-2) - module.eps).clamp_min(0))
