"""The repair of networks that normalise each input, without labels: branches by MMSE, and a head without preference.

A branch that is mostly noise should count less beside the stream, and MMSE of its layers makes it so. Behind the last
normalisation MMSE would silence the outputs and gain nothing: these layers are left alone
(docs/how-it-works/branches.md).
"""

from collections.abc import Callable, Collection
from contextlib import ExitStack

import torch
from torch import nn

from quietnn.batches import call
from quietnn.errors import InvalidConfig
from quietnn.evidence import some_inputs
from quietnn.noise import NoiseVariance
from quietnn.observation import observe
from quietnn.repairs.affine import MMSE, AffineDenoiser
from quietnn.repairs.base import Repaired
from quietnn.repairs.grouped import GroupedWeights, grouped
from quietnn.repairs.head import centre_head
from quietnn.repairs.kinds import normalises_each_input, stores_statistics
from quietnn.targets import noisy_weights, with_weights
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.weights import NORMALISATION_TYPES


@torch.inference_mode(False)
def denoise_branches(
    what: object,
    inputs: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    balanced_classes: bool = False,
) -> Repaired:
    """Shrink each layer by its own MMSE up to the last normalisation, and correct the last bias.

    For transformers and other networks that normalise each input (LayerNorm, RMSNorm, GroupNorm, InstanceNorm) and
    store no statistics. Noise shifts the outputs of such a network for all inputs alike, and nothing shifts them back.
    A classifier then gives most inputs to one class. If all classes are equally common among the inputs, the bias of
    the last layer can correct this (docs/how-it-works/branches.md).

    Args:
        what: the network as received.
        inputs: of the kind the network is for, in any form of `Evidence`. Two are run to see the order of its layers.
            With `balanced_classes` all are run once: give about 100.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        balanced_classes: True if all classes are about equally common among the inputs. Labels are not needed.

    Raises:
        InvalidConfig: if no layer normalises each input, if some layer stores statistics, or if `balanced_classes` is
            set and the network does not end in a linear layer with a bias.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> repaired = denoise_branches(network, torch.rand(10, 4), noise_variance=0.01).model
    >>> torch.equal(repaired[0].weight, network[0].weight), torch.equal(repaired[2].weight, network[2].weight)
    (False, True)
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = some_inputs(inputs, "denoise_branches")
    model, inputs = observation.model, evidence.first(2)
    result = with_weights(model, {})
    with undisturbed(result):
        kept = behind_last_normalisation(result, lambda: call(result, inputs), normalisation=observation.normalisation)
    if kept is None or stores_statistics(model):
        raise InvalidConfig(
            "branches is for networks that normalise each input (LayerNorm and the like) and have no stored "
            "statistics, and this is none; use calibrate where there is BatchNorm, denoise elsewhere, or name a "
            "normalisation of your own: normalisation=(Mine,)"
        )
    layers = grouped(observation, "layerwise")
    if layers.noise_variance > 0:
        out = noisy_weights(result, noisy=tuple(layers.weights))
        layers.estimate(branch_denoisers(layers, kept), out)  # in place: no third copy of the weights
    if not balanced_classes:
        return Repaired(result, "branches")
    centre_head(observation, result, evidence)
    return Repaired(result, "branches_balanced", 1.0)


def behind_last_normalisation(
    model: nn.Module,
    run: Callable[[], object],
    *,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> frozenset[str] | None:
    """Names of the parameters that are used behind the last normalisation of an input; None if there is none.

    Found by watching the order of calls in a run, not by names. A layer that its parent uses without calling it goes
    with the parent; so does a parameter of a module that was still running at that normalisation, for it may be used
    behind it.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))
    >>> sorted(behind_last_normalisation(network, lambda: network(torch.zeros(1, 2))))
    ['2.bias', '2.weight']
    """
    called: list[nn.Module] = []
    running: list[nn.Module] = []
    at_last: list[nn.Module] | None = None
    num_before = 0

    def before(layer: nn.Module, _: object) -> None:
        nonlocal at_last, num_before
        called.append(layer)
        if normalises_each_input(layer, normalisation):
            at_last, num_before = running.copy(), len(called)
        running.append(layer)

    def after(*_: object) -> None:
        running.pop()

    with ExitStack() as hooks, torch.no_grad(), eagerly(model):
        for layer in model.modules():
            hooks.enter_context(layer.register_forward_pre_hook(before))
            hooks.enter_context(layer.register_forward_hook(after))
        run()
    if at_last is None:
        return None
    seen = set(called)
    used = {id(parameter) for layer in at_last for parameter in layer.parameters(recurse=False)}
    used |= {
        id(parameter)
        for layer in called[num_before:]
        for part in layer.modules()
        if part is layer or part not in seen
        for parameter in part.parameters(recurse=False)
    }
    return frozenset(name for name, one in model.named_parameters(remove_duplicate=False) if id(one) in used)


def branch_denoisers(by_group: GroupedWeights, kept: Collection[str]) -> dict[str, AffineDenoiser]:
    """MMSE for every layer, but for those that hold a name to be kept."""
    denoisers = by_group.denoisers(MMSE)
    return {
        group: AffineDenoiser(1.0, 0.0) if any(name in kept for name in members) else denoisers[group]
        for group, members in by_group.groups.items()
    }
