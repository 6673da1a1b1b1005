"""MMSE for networks that normalise each input: noisy branches count less, and what nothing normalises stays as it came.

In `norm(x + f(x))` the scale of `f` is a weight: a branch that is mostly noise should count less beside the stream `x`,
and MMSE of its layers, each by its own `theta`, makes it so. Behind the last normalisation there is no stream and
nobody who gives a scale back. The head of a classifier is small, its own WNR low, and its `theta` near zero: MMSE would
silence the outputs and gain nothing, for a common factor of signal and noise changes no answer. These layers are left
alone.
"""

from collections.abc import Callable, Collection

import torch
from torch import nn

from quietnn.repairs.affine import MMSE, AffineDenoiser
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.kinds import normalises_each_input
from quietnn.watching.makers import eagerly
from quietnn.weights import NORMALISATION_TYPES


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

    Args:
        model: the network.
        run: calls it.
        normalisation: module types whose parameters carry no noise.

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

    handles = [layer.register_forward_pre_hook(before) for layer in model.modules()]
    handles += [layer.register_forward_hook(after) for layer in model.modules()]
    try:
        with torch.no_grad(), eagerly(model):
            run()
    finally:
        for handle in handles:
            handle.remove()
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
    """MMSE for every group, but for those that hold a name to be kept.

    Args:
        by_group: the noisy weights by layer.
        kept: what `behind_last_normalisation` found.
    """
    denoisers = by_group.denoisers(MMSE)
    return {
        group: AffineDenoiser(1.0, 0.0) if any(name in kept for name in members) else denoisers[group]
        for group, members in by_group.groups.items()
    }
