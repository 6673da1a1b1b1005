"""What a calibration did at each layer."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class CalibratedLayer:
    """How the statistics of one BatchNorm were weighed at one of its calls.

    Attributes:
        name: of the BatchNorm.
        feeder: the layer whose output it normalises; None where it could not be traced (a sum, a concatenation, a
            layer of another kind), so that only the sample says how large the changes are.
        noise_share: the part of the predicted variance that is this layer's own noise.
        upstream_share: the part of the inputs that is noise of earlier layers, at most.
        mean_weight: average weight of the sample's means (0: as predicted, 1: as re-estimated).
        variance_weight: the same for the variances of single channels.
        common_weight: the same for the change of variance that all channels share.
    """

    name: str
    feeder: str | None
    noise_share: float
    upstream_share: float
    mean_weight: float
    variance_weight: float
    common_weight: float


@dataclass(frozen=True)
class CalibrationReport:
    """A calibrated network and how each layer was weighed, in the order of the forward pass.

    Attributes:
        model: the network with its new statistics.
        layers: one entry for each call of a BatchNorm.
        head_weight: how much of the differences between the classes' mean outputs was taken out; 0 unless asked for.
    """

    model: nn.Module
    layers: tuple[CalibratedLayer, ...]
    head_weight: float = 0.0

    def __str__(self) -> str:
        """A table, one line for each layer."""
        width = max((len(layer.name) for layer in self.layers), default=0)
        lines = [
            f"{layer.name:{width}}  noise {layer.noise_share:4.0%}  upstream {layer.upstream_share:4.0%}  "
            f"from the sample: means {layer.mean_weight:4.0%}, variances {layer.variance_weight:4.0%}, "
            f"common {layer.common_weight:4.0%}" + ("" if layer.feeder else "  (layer in front unknown)")
            for layer in self.layers
        ]
        return "\n".join(lines)
