"""The schemes that noisy training compares, by name, and the two estimators among them that remember.

docs/how-it-works/noisy-training.md derives both and says why the best estimate of a round is not the best step.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.federated.estimators import Affine, Estimate, Estimator, Memory, ReceivedSum, Tuned, mean_over_weights
from quietnn.records import Record
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.theory.family import lambda_prime_of
from quietnn.units import db_to_ratio
from quietnn.weights import partition


@dataclass(frozen=True)
class Carried:
    """MMSE around a prediction made from the past, per layer: no search, no examples, no temperatures.

    It is the Kalman filter of `s_t = a s_{t-1} + q_t` in its innovation form (Mehra 1970): `a` and the prediction's
    variance are read off the innovations, so nothing has to be told or tuned.
    """

    def __call__(self, received: ReceivedSum, memory: Memory) -> Estimate:
        """Predict, correct, and remember."""
        total: dict[str, Tensor] = {}
        gains, explained, num_weights = 0.0, 0.0, 0
        for members in partition(tuple(received.total), "layerwise").values():
            heard = _flat(received.total, members)
            prediction = self._predict(heard, memory, members)
            innovation = heard - prediction
            variance = max(float(innovation.square().mean()) - received.noise_variance, 0.0)
            gain = variance / (variance + received.noise_variance) if received.noise_variance else 1.0
            total |= _split(prediction + gain * innovation, members, received)
            gains += gain * len(heard)
            explained += float(prediction.square().sum())
            num_weights += len(heard)
        notes: Record = {"theta": gains / num_weights, "predicted_power": explained / num_weights}
        return Estimate(total, {f"estimate/{name}": tensor for name, tensor in total.items()}, notes)

    def _predict(self, heard: Tensor, memory: Memory, members: tuple[str, ...]) -> Tensor:
        columns = [torch.ones_like(heard)]
        if f"estimate/{members[0]}" in memory:
            columns.append(_flat(memory, [f"estimate/{name}" for name in members]))
        if len(heard) <= 4 * len(columns):
            return torch.zeros_like(heard)
        matrix = torch.stack(columns, dim=1)
        matrix = matrix / matrix.square().mean(dim=0).sqrt().clamp_min(1e-30)
        normal = matrix.T @ matrix + 1e-9 * len(heard) * torch.eye(len(columns), dtype=torch.float64)
        coefficients: Tensor = torch.linalg.solve(normal, matrix.T @ heard)
        return matrix @ coefficients


@dataclass(frozen=True)
class Planned:
    """The multiplier that lets at most `noise_to_weights` times the weights' size of noise in, in the first round.

        theta = min(1, nu M sqrt(mean(w^2)) / sigma_z)          with sigma_z and w of the first round, per group

    It stays for the whole run: as updates shrink with the learning rate, the noise at a given WNR shrinks with them.

    Attributes:
        noise_to_weights: `nu`, the largest ratio of the noise's standard deviation to the weights' root mean square.
        groups: `"whole"` or `"layerwise"`.
    """

    noise_to_weights: float = 1.0
    groups: str = "whole"

    def __post_init__(self) -> None:
        if not self.noise_to_weights > 0:
            raise InvalidConfig(f"noise_to_weights is {self.noise_to_weights}; it must be above 0, for example 1")

    def __call__(self, received: ReceivedSum, memory: Memory) -> Estimate:
        """Multiply by what the first round decided."""
        groups = partition(tuple(received.total), self.groups)
        carried = {f"theta/{group}": self._theta(received, memory, group, names) for group, names in groups.items()}
        thetas = {group: float(carried[f"theta/{group}"]) for group in groups}
        total = {name: received.total[name] * thetas[group] for group, names in groups.items() for name in names}
        return Estimate(total, carried, {"theta": mean_over_weights(thetas, groups, received.total)})

    def _theta(self, received: ReceivedSum, memory: Memory, group: str, names: tuple[str, ...]) -> Tensor:
        if f"theta/{group}" in memory:
            return memory[f"theta/{group}"]
        if received.noise_variance == 0:
            return torch.ones((), dtype=torch.float64)
        num_weights = sum(received.weights[name].numel() for name in names)
        power = sum(float(received.weights[name].double().square().sum()) for name in names) / num_weights
        noise_std = math.sqrt(received.noise_variance) / received.num_devices
        return torch.tensor(min(1.0, self.noise_to_weights * math.sqrt(power) / noise_std), dtype=torch.float64)


SCHEMES: dict[str, Estimator] = {
    "ml": Affine(ML),
    "mmse": Affine(MMSE),
    "mmse_layerwise": Affine(MMSE, "layerwise"),
    "mmse_p": Tuned(with_beta=False),
    "mmse_pb": Tuned(),
    "mmse_pb_layerwise": Tuned(groups="layerwise"),
    "mmse_pb_oracle": Tuned(oracle=True),
    "carried": Carried(),
    "planned": Planned(),
    "planned_bold": Planned(noise_to_weights=2.0),
    "planned_layerwise": Planned(groups="layerwise"),
}
"""Schemes that need nothing but the round at hand and what they remember. Those called oracle see test examples."""

FIXED = "mmse_pb_fixed"
"""Temperatures fixed over the run, chosen by the final accuracy on validation examples with another seed."""

FIXED_ORACLE = "mmse_pb_fixed_oracle"
"""The same, chosen by the final accuracy on test examples, as the paper does."""

METHODS = (*SCHEMES, FIXED, FIXED_ORACLE)
"""Every scheme that a configuration can name."""


def fixed_temperatures(theta: float, beta: float, wnr_db: float) -> Temperatures:
    """The temperatures with multiplier `theta` at this WNR, the same in all rounds: `lambda' = 1 + eta (1 - 1/theta)`.

    >>> fixed_temperatures(1.0, 0.0, -10.0) == ML
    True
    """
    return Temperatures(lambda_prime_of(theta, weight_variance=db_to_ratio(wnr_db), noise_variance=1.0), beta)


def _flat(tensors: Memory, names: Iterable[str]) -> Tensor:
    return torch.cat([tensors[name].flatten().double() for name in names])


def _split(values: Tensor, members: tuple[str, ...], received: ReceivedSum) -> dict[str, Tensor]:
    """A flat vector of a group cut back into its tensors."""
    tensors = [received.total[name] for name in members]
    pieces = torch.split(values, [tensor.numel() for tensor in tensors])
    return {
        name: piece.view(tensor.shape).to(tensor.dtype)
        for name, piece, tensor in zip(members, pieces, tensors, strict=True)
    }
