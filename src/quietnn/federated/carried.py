"""A prior carried from round to round: the server predicts the sum before it listens, and corrects what it hears.

Successive updates are correlated: the network keeps moving the same way, and devices undo part of the noise that the
server let through. So a server that has listened for a while does not expect a sum of zero mean. Per layer it takes

    s_t | past ~ N(F_t a_t, p_t)          F_t: what the server holds before round t, one column a feature
    r_t = s_t + z_t                       a_t by least squares of r_t on F_t: z_t is independent of F_t, so it does not
                                          bias it;  p_t = max(var(r_t - F_t a_t) - sigma_z^2, 0)
    s_hat_t = F_t a_t + p_t / (p_t + sigma_z^2) (r_t - F_t a_t)

With the previous estimate as a feature, this is the Kalman filter of `s_t = a s_{t-1} + q_t` in its innovation form:
the prediction's variance `p_t = a^2 P_{t-1} + q` and `a` are read off the innovations instead of being propagated
(Mehra 1970), so nothing has to be told or tuned. Without features it is MMSE with zero mean.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.errors import unknown_choice
from quietnn.federated.estimators import Estimate, Memory, ReceivedSum
from quietnn.records import Record
from quietnn.weights import partition

FEATURES = ("mean", "estimate", "innovation", "weights")
"""What a prediction may use: a constant, the previous estimate, the previous innovation, the global weights."""


@dataclass(frozen=True)
class Carried:
    """MMSE around a prediction made from the past, in closed form: no search, no examples, no temperatures.

    Attributes:
        features: what the prediction is made of, names from `FEATURES`.
        groups: `"layerwise"` or `"whole"`.
    """

    features: tuple[str, ...] = ("mean", "estimate")
    groups: str = "layerwise"

    def __post_init__(self) -> None:
        """Refuse features that do not exist."""
        for name in self.features:
            if name not in FEATURES:
                raise unknown_choice("feature", name, FEATURES)

    def __call__(self, received: ReceivedSum, memory: Memory) -> Estimate:
        """Predict, correct, and remember."""
        total: dict[str, Tensor] = {}
        carried: dict[str, Tensor] = {}
        gains, explained, num_weights = 0.0, 0.0, 0
        for members in partition(tuple(received.total), self.groups).values():
            heard = torch.cat([received.total[name].flatten().double() for name in members])
            prediction = self._predict(heard, received, memory, members)
            innovation = heard - prediction
            variance = max(float(innovation.square().mean()) - received.noise_variance, 0.0)
            gain = variance / (variance + received.noise_variance) if received.noise_variance else 1.0
            estimate = prediction + gain * innovation
            total |= _split(estimate, members, received)
            carried |= {f"estimate/{name}": tensor for name, tensor in _split(estimate, members, received).items()}
            carried |= {f"innovation/{name}": tensor for name, tensor in _split(innovation, members, received).items()}
            gains += gain * len(heard)
            explained += float(prediction.square().sum())
            num_weights += len(heard)
        notes: Record = {"theta": gains / num_weights, "predicted_power": explained / num_weights}
        return Estimate(total, carried, notes)

    def _predict(self, heard: Tensor, received: ReceivedSum, memory: Memory, members: tuple[str, ...]) -> Tensor:
        columns = []
        for feature in self.features:
            if feature == "mean":
                columns.append(torch.ones_like(heard))
            elif feature == "weights":
                columns.append(torch.cat([received.weights[name].flatten().double() for name in members]))
            elif f"{feature}/{members[0]}" in memory:
                columns.append(torch.cat([memory[f"{feature}/{name}"].flatten().double() for name in members]))
        if not columns or len(heard) <= 4 * len(columns):
            return torch.zeros_like(heard)
        matrix = torch.stack(columns, dim=1)
        scale = matrix.square().mean(dim=0).sqrt().clamp_min(1e-30)
        matrix = matrix / scale
        normal = matrix.T @ matrix + 1e-9 * len(heard) * torch.eye(len(columns), dtype=torch.float64)
        coefficients: Tensor = torch.linalg.solve(normal, matrix.T @ heard)
        return matrix @ coefficients


def _split(values: Tensor, members: tuple[str, ...], received: ReceivedSum) -> dict[str, Tensor]:
    """A flat vector of a group cut back into its tensors."""
    tensors = [received.total[name] for name in members]
    pieces = torch.split(values, [tensor.numel() for tensor in tensors])
    return {
        name: piece.view(tensor.shape).to(tensor.dtype)
        for name, piece, tensor in zip(members, pieces, tensors, strict=True)
    }
