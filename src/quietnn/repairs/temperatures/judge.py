"""Temperatures are judged by denoising one scratch copy of the network again and again.

A layerwise search changes one layer at a time: what the layers before it compute need not be computed again.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from quietnn.errors import InvalidConfig
from quietnn.observation import Observation
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures
from quietnn.score import Score, SubsetScore

MEMORY_LIMIT = 2**30
"""Bytes of activations kept; what comes too late for them is computed as ever."""

_REMEMBERED = {torch.conv1d, torch.conv2d, torch.conv3d, functional.linear}


class _Call:
    """A call, what it returned, and the versions of its tensors, by which a change in place is noticed."""

    def __init__(self, given: Sequence[Any], returned: Tensor) -> None:
        self.given, self.returned = given, returned
        self.num_bytes = int(given[0].nbytes + returned.nbytes)  # the weights are there anyway
        self._versions = _versions([*given, returned])

    def answers(self, given: Sequence[Any]) -> bool:
        is_intact = self._versions == _versions([*self.given, self.returned])
        return is_intact and len(given) == len(self.given) and all(map(_same, self.given, given))


class Memory(TorchFunctionMode):
    """While this is entered, convolutions and linear layers return what they returned to the same input before.

    A call is answered from memory only if its input and weights are equal in every element to those of a call since
    the memory was last entered, none of them written to in between. So the results are those without a memory, to the
    bit. Tensors of inference mode do not count what is written into them; there everything is computed.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    >>> memory, example = Memory(), torch.ones(1, 2)
    >>> with torch.no_grad():
    ...     for factor in (1.0, 2.0, 3.0):
    ...         with memory:
    ...             _ = model[1].weight.mul_(factor), model(example)
    >>> memory.num_computed, memory.num_recalled
    (4, 2)
    """

    def __init__(self, *, limit: int = MEMORY_LIMIT) -> None:
        super().__init__()
        self.num_computed = 0
        self.num_recalled = 0
        self._limit = limit
        self._earlier: dict[int, list[_Call]] = {}
        self._now: dict[int, list[_Call]] = {}
        self._num_bytes = 0

    def __enter__(self) -> Self:
        """Begin a pass: what the pass before did not use is forgotten."""
        self._earlier, self._now = self._now, {}
        self._num_bytes = 0
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer from memory what can be answered, compute the rest."""
        if func not in _REMEMBERED or kwargs or torch.is_grad_enabled() or not _count_writes(args):
            return func(*args, **(kwargs or {}))
        earlier = self._earlier.get(id(args[1]), ())
        call = next((one for one in earlier if one.answers(args)), None)
        if call is None:
            call = _Call(args, func(*args))
            self.num_computed += 1
        else:
            self.num_recalled += 1
        if self._num_bytes + call.num_bytes <= self._limit:
            self._num_bytes += call.num_bytes
            self._now.setdefault(id(args[1]), []).append(call)
        return call.returned


def _same(known: Any, given: Any) -> bool:
    """Whether two arguments are equal; of two weights, whether they are one tensor."""
    if known is given or not isinstance(known, Tensor) or not isinstance(given, Tensor):
        return known is given or (type(known) is type(given) and bool(known == given))
    return known.shape == given.shape and known.dtype == given.dtype and torch.equal(known, given)


def _count_writes(arguments: Sequence[Any]) -> bool:
    """Whether a write into the arguments, or into what is made of them, would be noticed; not so in inference mode."""
    known = not any(isinstance(argument, Tensor) and argument.is_inference() for argument in arguments)
    return known and not torch.is_inference_mode_enabled()


def _versions(arguments: Sequence[Any]) -> tuple[int, ...]:
    return tuple(argument._version for argument in arguments if isinstance(argument, Tensor))


class Judge:
    """Scores temperatures by denoising one scratch copy of the model again and again."""

    def __init__(self, observation: Observation[Any, Any], score: Callable[[nn.Module], Score] | SubsetScore) -> None:
        scratch = observation.on(copy.deepcopy(observation.model))
        self._scratch, self._weights = scratch.model, scratch.weights
        self._score = score
        self._memory = Memory()
        self._written: tuple[GroupedWeights, GroupTemperatures] | None = None

    @property
    def can_race(self) -> bool:
        """Whether the score can look at some of the examples."""
        return isinstance(self._score, SubsetScore)

    @property
    def subset(self) -> SubsetScore:
        """The score, where it can look at some of the examples."""
        if not isinstance(self._score, SubsetScore):
            raise InvalidConfig(
                "racing looks at some of the examples at a time, and this score always looks at all; give "
                "quietnn.score.SubsetScore(lambda network, positions: ..., num_examples=...), or leave out search"
            )
        return self._score

    def score(
        self,
        by_group: GroupedWeights,
        temperatures: Temperatures | GroupTemperatures,
        positions: Tensor | None = None,
    ) -> Score:
        """The score of the network that temperatures give, on all examples or on those at some positions.

        Of several groups, those with the temperatures of the last call are left as they are, and the layers before
        the first that changed answer from memory.
        """
        self._write(by_group, temperatures)
        if positions is not None:
            return self.subset.of(self._scratch, positions)
        with nullcontext() if isinstance(temperatures, Temperatures) else self._memory:
            return self._score(self._scratch)

    def _write(self, by_group: GroupedWeights, temperatures: Temperatures | GroupTemperatures) -> None:
        """Denoise the scratch copy; what is known to be there already is not written again."""
        denoisers = by_group.denoisers(temperatures)
        if isinstance(temperatures, Temperatures):
            temperatures = dict.fromkeys(by_group.groups, temperatures)
        there = self._written[1] if self._written and self._written[0] is by_group else {}
        self._written = None  # until it is done
        changed = {name: denoiser for name, denoiser in denoisers.items() if temperatures[name] != there.get(name)}
        by_group.estimate(changed, out=self._weights)
        self._written = (by_group, temperatures)
