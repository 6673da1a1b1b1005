"""BatchNorms matched to those of the clean network, which whoever programmed a chip has: a gain and a shift by channel.

Let `z` be what enters a channel of a BatchNorm on the noisy network, and `a` what the clean network makes there of the
same inputs. Of all `alpha z + beta` the nearest to `a` has

    alpha = cov(a, z) / var(z)        beta = mean(a) - alpha mean(z)

over inputs and places. Layer by layer, each on inputs that are matched already, this takes two forward passes, no
labels and no gradients. All of it is digital: no weight changes (docs/how-it-works/teacher.md).
"""

import copy

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, call
from quietnn.errors import InvalidConfig
from quietnn.evidence import some_inputs
from quietnn.observation import observe
from quietnn.repairs.base import Repaired
from quietnn.watching.batch_moments import wide
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.watching.survey import BatchNorm, Run, has_statistics, survey

_TINY = 1e-30
"""Below every variance; a channel that never varies gets the mean alone."""


@torch.inference_mode(False)
def match(what: object, inputs: object, *, teacher: nn.Module | None = None) -> Repaired:
    """Give every BatchNorm the gain and shift that bring its outputs nearest to those of the clean network.

    A BatchNorm that is called more than once keeps what it has. One without gains and biases gets other statistics.

    Args:
        what: the network as received.
        inputs: at least two inputs of the kind the network is for, about 100 if you can, in any form of `Evidence`. No
            more are used than run at once; what the clean network makes of these at all BatchNorms is in memory.
        teacher: the clean network, with layers of the same names; or that of the `Evidence`.

    Returns:
        The network. In its details, `alike` has the mean correlation of `z` and `a` at each BatchNorm, before.

    Raises:
        InvalidConfig: if there is no teacher, or one of another architecture.

    >>> clean = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    >>> noisy = copy.deepcopy(clean)
    >>> noisy[0].weight.data *= 3.0
    >>> torch.allclose(match(noisy, torch.eye(2), teacher=clean).model(torch.eye(2)), clean(torch.eye(2)), atol=1e-5)
    True
    """
    observation = observe(what)
    evidence = some_inputs(inputs, "match", teacher=teacher)
    if evidence.teacher is None:
        raise InvalidConfig(
            "matching needs the clean network: match(model, inputs, teacher=clean); without one use calibrate"
        )
    known = evidence.without_labels().in_memory()
    size = min(len(known), known.batch_size)
    few = known.take(torch.arange(size) * len(known) // size).inputs
    result = copy.deepcopy(observation.model)
    found = survey(result, few)
    if not found.places:
        raise InvalidConfig("this network has no BatchNorm with running statistics, so there is nothing to match")
    targets = _made_at([name for name in found.places if name not in found.shared], result, evidence.teacher, few)
    alike: dict[str, float] = {}

    def at_norm(run: Run, name: str, module: BatchNorm, arriving: Tensor) -> None:
        if name in targets:
            alike[name] = _match(module, arriving, targets.pop(name))

    with undisturbed(result), eagerly(result), torch.no_grad():
        Run(at_norm).through(result, few)
    return Repaired(result, "matched", 2.0 * size / len(known), {"alike": alike})


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


def _made_at(names: list[str], model: nn.Module, teacher: nn.Module, inputs: Inputs) -> dict[str, Tensor]:
    """What the BatchNorms of a teacher make of inputs."""
    if not has_same_norms(model, teacher):
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
            call(teacher, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return made


def _match(module: BatchNorm, arriving: Tensor, target: Tensor) -> float:
    """Set what a BatchNorm does to what arrives; returns the mean correlation with the target."""
    others = [place for place in range(arriving.dim()) if place != 1]
    shape = [1 if place in others else -1 for place in range(arriving.dim())]
    arriving, target = wide(arriving), wide(target)
    mean, goal = arriving.mean(others), target.mean(others)
    centred, wanted = arriving - mean.view(shape), target - goal.view(shape)
    variance, power = centred.square().mean(others), wanted.square().mean(others)
    covariance = (centred * wanted).mean(others)
    factor = covariance / variance.clamp_min(_TINY)
    assert module.running_mean is not None
    assert module.running_var is not None
    if module.affine:
        module.running_mean.copy_(mean)
        module.running_var.copy_(variance)
        module.weight.copy_(factor * (variance + module.eps).sqrt())
        module.bias.copy_(goal)
    else:  # statistics divide, so that the factor has to be positive
        factor = torch.where(factor > 0, factor, (variance + module.eps).rsqrt())
        module.running_mean.copy_(mean - goal / factor)
        module.running_var.copy_((factor.pow(-2) - module.eps).clamp_min(0))
    return float((covariance / (variance * power).sqrt().clamp_min(_TINY)).mean())
