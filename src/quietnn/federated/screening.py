"""Which updates of a round are fit to be superposed: one device must not decide what becomes of a run.

The check needs to see single updates, as a simulator or a Flower server does. Behind a real multiple access channel
the server receives their sum alone, and there is nothing to check.
"""

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType

import torch

from quietnn.federated.devices import Diverged
from quietnn.weights import Weights

NORM_BOUND = 10.0
"""How many times the median norm of the others an update may have.

With the paper's partition it never acted in 81 runs on the digits, and honest updates stayed below 2.5 times in 23
others whose norms were recorded. Weights multiplied by -50 are hundreds of times the others' updates. Parts of very
unequal sizes exceed it now and then.
"""

_LARGEST_COUNT = 2**31
_NOBODY: Mapping[int, str] = MappingProxyType({})


@torch.no_grad()
def screen(
    state: Weights,
    updates: Mapping[int, Weights],
    *,
    noisy: Collection[str],
    round_number: int,
    norm_bound: float = NORM_BOUND,
    diverged: Mapping[int, str] = _NOBODY,
    num_chosen: int | None = None,
) -> tuple[dict[int, Weights], dict[int, str]]:
    """What is left without updates that are not finite, not possible, or far too large; and why they go, by device.

    There are two norms: of all noisy parameters, and of all other floating-point tensors. An update is refused if the
    first is above `norm_bound` times the median over the other devices, or the second above its square: most of what is
    sent without noise are variances. Of an even number it is the upper median, so that neither a huge update nor one of
    zeros moves the limit for honest ones. A single update has nothing to be compared with.

    Devices started from `state`, and the parameters `noisy` go over the air. Some have no update since their training
    `diverged`; if more than half of those that were chosen (default: all that are named here) left the finite numbers,
    the run ends: `Diverged`.

    >>> updates = {device: {"fc.weight": torch.tensor([1.0 + device])} for device in range(3)}
    >>> updates[7] = {"fc.weight": torch.tensor([-500.0])}
    >>> kept, refused = screen({"fc.weight": torch.tensor([5.0])}, updates, noisy=["fc.weight"], round_number=0)
    >>> sorted(kept), refused
    ([0, 1, 2], {7: 'its update is 250 times the median of the others in the noisy parameters; the limit is 10'})
    """
    lost = dict(diverged) | _reasons(updates, _not_finite)
    chosen = len(updates.keys() | diverged.keys()) if num_chosen is None else num_chosen
    if 2 * len(lost) > chosen:
        first = min(lost)
        raise Diverged(
            f"{len(lost)} of {chosen} devices left the finite numbers in round {round_number + 1}; "
            f"device {first}: {lost[first]}"
        )
    left = {device: update for device, update in updates.items() if device not in lost}
    impossible = _reasons(left, partial(_impossible, state))
    left = {device: update for device, update in left.items() if device not in impossible}
    large = _too_large(state, left, noisy, norm_bound)
    kept = {device: update for device, update in left.items() if device not in large}
    return kept, lost | impossible | large


def _reasons(updates: Mapping[int, Weights], check: Callable[[Weights], str | None]) -> dict[int, str]:
    """Why a check refuses updates, by device."""
    return {device: reason for device, update in updates.items() if (reason := check(update)) is not None}


def _not_finite(update: Weights) -> str | None:
    for name, tensor in update.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f"its update is not finite in {name}; try a smaller learning_rate, more WNR, or another denoiser"
    return None


def _impossible(state: Weights, update: Weights) -> str | None:
    """Values that no training gives: a variance below zero, a counter that goes back or leaps."""
    for name, tensor in update.items():
        if not tensor.is_floating_point():
            if tensor.numel() and (int(tensor.min()) < 0 or int(tensor.max()) > _LARGEST_COUNT):
                return f"the counter {name} changes by {int(tensor.flatten()[0])}"
        elif name.endswith("running_var") and bool((state[name] + tensor < 0).any()):
            return f"a variance in {name} is below zero"
    return None


def _too_large(
    state: Weights, updates: Mapping[int, Weights], noisy: Collection[str], norm_bound: float
) -> dict[int, str]:
    if norm_bound == math.inf or len(updates) < 2:
        return {}
    over_the_air = set(noisy)
    clean = [name for name, tensor in state.items() if name not in over_the_air and tensor.is_floating_point()]
    parts = (
        ("the noisy parameters", [name for name in state if name in over_the_air], norm_bound),
        ("what is sent without noise", clean, norm_bound**2),
    )
    refused: dict[int, str] = {}
    for part, names, limit in parts:
        norms = {device: _norm(update, names) for device, update in updates.items()}
        for device, norm in norms.items():
            others = sorted(other for number, other in norms.items() if number != device)
            median = others[len(others) // 2]
            if norm > limit * median:
                times = f"{norm / median:.3g} times" if median else "infinitely many times"
                refused[device] = f"its update is {times} the median of the others in {part}; the limit is {limit:g}"
    return refused


def _norm(update: Weights, names: Collection[str]) -> float:
    return math.sqrt(sum(float(update[name].double().square().sum()) for name in names))
