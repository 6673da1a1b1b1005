"""Temperatures are judged by denoising one scratch copy of the network again and again."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.observation import Observation
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures
from quietnn.score import Score, SubsetScore


class Judge:
    """Scores temperatures by denoising one scratch copy of the model again and again."""

    def __init__(self, observation: Observation[Any, Any], score: Callable[[nn.Module], Score] | SubsetScore) -> None:
        scratch = observation.on(copy.deepcopy(observation.model))
        self._scratch, self._weights = scratch.model, scratch.weights
        self._score = score
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

        Of several groups, those with the temperatures of the last call are left as they are.
        """
        self._write(by_group, temperatures)
        return self._score(self._scratch) if positions is None else self.subset.of(self._scratch, positions)

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
