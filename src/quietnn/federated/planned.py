"""A multiplier planned for the whole run: as much noise as the weights can bear, decided in the first round.

The best estimate of one round's sum is not the best step for training: the MMSE multiplier `eta / (1 + eta)` is so
small at low WNR that the network hardly moves, while ML lets noise in until it is larger than the weights themselves.
What decides is not the error of a step but the noise that stays in the weights. One round leaves noise of standard
deviation `theta sigma_z / M` in each of them, so the multiplier is the largest whose first round does not drown them,

    theta = min(1, nu M sqrt(mean(w^2)) / sigma_z)          with sigma_z and w of the first round, per group

and it stays: as updates shrink with the learning rate, the noise at a given WNR shrinks with them, and early noise is
averaged away by later rounds. It is the family's `lambda' = 1 + eta (1 - 1 / theta)`, found without search, examples
or knowledge of `eta`; `theta = 1`, hence ML, wherever the noise is weaker than the weights. `nu` is 1 in the scheme
`planned` and 2 in `planned_bold`.
"""

import math
from dataclasses import dataclass

import torch

from quietnn.errors import InvalidConfig
from quietnn.federated.estimators import Estimate, Memory, ReceivedSum
from quietnn.records import Record
from quietnn.weights import partition


@dataclass(frozen=True)
class Planned:
    """The multiplier that lets at most `noise_to_weights` times the weights' size of noise in, in the first round.

    Attributes:
        noise_to_weights: `nu`, the largest ratio of the noise's standard deviation to the weights' root mean square.
        groups: `"whole"` or `"layerwise"`.
    """

    noise_to_weights: float = 1.0
    groups: str = "whole"

    def __post_init__(self) -> None:
        """Refuse a budget that lets nothing through."""
        if not self.noise_to_weights > 0:
            raise InvalidConfig(f"noise_to_weights is {self.noise_to_weights}; it must be above 0, for example 1")

    def __call__(self, received: ReceivedSum, memory: Memory) -> Estimate:
        """Multiply by what the first round decided."""
        groups = partition(tuple(received.total), self.groups)
        carried = {f"theta/{group}": self._theta(received, memory, group, names) for group, names in groups.items()}
        total = {
            name: received.total[name] * float(carried[f"theta/{group}"])
            for group, names in groups.items()
            for name in names
        }
        sizes = {group: sum(received.total[name].numel() for name in names) for group, names in groups.items()}
        theta = sum(float(carried[f"theta/{group}"]) * size for group, size in sizes.items()) / sum(sizes.values())
        notes: Record = {"theta": theta}
        return Estimate(total, carried, notes)

    def _theta(self, received: ReceivedSum, memory: Memory, group: str, names: tuple[str, ...]) -> torch.Tensor:
        if f"theta/{group}" in memory:
            return memory[f"theta/{group}"]
        if received.noise_variance == 0:
            return torch.ones((), dtype=torch.float64)
        num_weights = sum(received.weights[name].numel() for name in names)
        power = sum(float(received.weights[name].double().square().sum()) for name in names) / num_weights
        noise_std = math.sqrt(received.noise_variance) / received.num_devices
        return torch.tensor(min(1.0, self.noise_to_weights * math.sqrt(power) / noise_std), dtype=torch.float64)
