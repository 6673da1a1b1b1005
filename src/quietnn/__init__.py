"""quietnn repairs neural networks whose weights arrived with noise on them.

>>> import torch, quietnn
>>> model = torch.nn.Linear(64, 64)
>>> observation = quietnn.transmit(model, wnr_db=0.0, seed=0)
>>> estimate = quietnn.denoise(observation.received, noise_variance=observation.noise_variance)

The public names are imported when they are first used, so that what needs no torch (reports, theory, the command
line's help) starts without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quietnn.calibration.calibrate import calibrate, calibrate_with_report
    from quietnn.calibration.report import CalibratedLayer, CalibrationReport
    from quietnn.channels.awgn import AWGN, Power
    from quietnn.channels.base import Channel, Observation
    from quietnn.channels.transmit import transmit
    from quietnn.denoisers.affine import METHODS, AffineDenoiser, Temperatures, ml, mmse, mmse_p, mmse_pb
    from quietnn.denoisers.denoise import denoise
    from quietnn.denoisers.reception import Reception
    from quietnn.errors import InfeasibleTemperatures, InvalidConfig, InvalidWeights, MissingData, QuietnnError
    from quietnn.tasks.base import Examples, Task
    from quietnn.tasks.registry import load_task
    from quietnn.theory.family import Form, affine_coefficients
    from quietnn.tuning.result import Criterion, Trial, TuningResult
    from quietnn.tuning.score import Score
    from quietnn.tuning.tune import tune
    from quietnn.weights import NORMALISATION_TYPES, WeightStatistics, layerwise, noisy_names, whole

__version__ = "0.1.0"

_HOMES = {
    "AWGN": "quietnn.channels.awgn",
    "METHODS": "quietnn.denoisers.affine",
    "NORMALISATION_TYPES": "quietnn.weights",
    "AffineDenoiser": "quietnn.denoisers.affine",
    "CalibratedLayer": "quietnn.calibration.report",
    "CalibrationReport": "quietnn.calibration.report",
    "Channel": "quietnn.channels.base",
    "Criterion": "quietnn.tuning.result",
    "Examples": "quietnn.tasks.base",
    "Form": "quietnn.theory.family",
    "InfeasibleTemperatures": "quietnn.errors",
    "InvalidConfig": "quietnn.errors",
    "InvalidWeights": "quietnn.errors",
    "MissingData": "quietnn.errors",
    "Observation": "quietnn.channels.base",
    "Power": "quietnn.channels.awgn",
    "QuietnnError": "quietnn.errors",
    "Reception": "quietnn.denoisers.reception",
    "Score": "quietnn.tuning.score",
    "Task": "quietnn.tasks.base",
    "Temperatures": "quietnn.denoisers.affine",
    "Trial": "quietnn.tuning.result",
    "TuningResult": "quietnn.tuning.result",
    "WeightStatistics": "quietnn.weights",
    "affine_coefficients": "quietnn.theory.family",
    "calibrate": "quietnn.calibration.calibrate",
    "calibrate_with_report": "quietnn.calibration.calibrate",
    "denoise": "quietnn.denoisers.denoise",
    "layerwise": "quietnn.weights",
    "load_task": "quietnn.tasks.registry",
    "ml": "quietnn.denoisers.affine",
    "mmse": "quietnn.denoisers.affine",
    "mmse_p": "quietnn.denoisers.affine",
    "mmse_pb": "quietnn.denoisers.affine",
    "noisy_names": "quietnn.weights",
    "transmit": "quietnn.channels.transmit",
    "tune": "quietnn.tuning.tune",
    "whole": "quietnn.weights",
}

__all__ = [
    "AWGN",
    "METHODS",
    "NORMALISATION_TYPES",
    "AffineDenoiser",
    "CalibratedLayer",
    "CalibrationReport",
    "Channel",
    "Criterion",
    "Examples",
    "Form",
    "InfeasibleTemperatures",
    "InvalidConfig",
    "InvalidWeights",
    "MissingData",
    "Observation",
    "Power",
    "QuietnnError",
    "Reception",
    "Score",
    "Task",
    "Temperatures",
    "Trial",
    "TuningResult",
    "WeightStatistics",
    "affine_coefficients",
    "calibrate",
    "calibrate_with_report",
    "denoise",
    "layerwise",
    "load_task",
    "ml",
    "mmse",
    "mmse_p",
    "mmse_pb",
    "noisy_names",
    "transmit",
    "tune",
    "whole",
]


def __getattr__(name: str) -> Any:
    """Import a public name from the module it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module 'quietnn' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *__all__])
