"""What a calibration did at each layer."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class CalibratedLayer:
    """How the statistics of one BatchNorm were weighed.

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
        layers: one entry for each BatchNorm that was calibrated.
        head_weight: how much of the differences between the classes' mean outputs was taken out; 0 unless asked for.
        shared: names of the BatchNorms that are called more than once and were left as they were.
    """

    model: nn.Module
    layers: tuple[CalibratedLayer, ...]
    head_weight: float = 0.0
    shared: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A table, one line for each layer."""
        width = max(map(len, (*(layer.name for layer in self.layers), *self.shared)), default=0)
        lines = [
            f"{layer.name:{width}}  noise {_percent(layer.noise_share)}  upstream {_percent(layer.upstream_share)}  "
            f"from the sample: means {_percent(layer.mean_weight)}, variances {_percent(layer.variance_weight)}, "
            f"common {_percent(layer.common_weight)}" + ("" if layer.feeder else "  (layer in front unknown)")
            for layer in self.layers
        ]
        lines += [f"{name:{width}}  called more than once, left as it was" for name in self.shared]
        return "\n".join(lines)


def _percent(share: float) -> str:
    """A share that is never below zero; rounding may have left a minus in front of nothing."""
    return f"{max(0.0, share):4.0%}"
