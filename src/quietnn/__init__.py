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
    from quietnn.automatic.auto import auto
    from quietnn.automatic.result import AutoResult, Tried
    from quietnn.calibration.branches import denoise_branches
    from quietnn.calibration.calibrate import calibrate, calibrate_with_report
    from quietnn.calibration.report import CalibratedLayer, CalibrationReport
    from quietnn.calibration.self_training import SelfTrained, confidence_loss, self_train
    from quietnn.calibration.starts import calibrated_starts
    from quietnn.calibration.structured import calibrate_structured
    from quietnn.channels.awgn import AWGN, Power
    from quietnn.channels.base import Channel, Medium, Observation
    from quietnn.channels.digital import CodedDigital
    from quietnn.channels.fading import BlockFading
    from quietnn.channels.moments import ErrorMoments
    from quietnn.channels.named import medium_named
    from quietnn.channels.pcm import PCM
    from quietnn.channels.quantisation import Quantisation
    from quietnn.channels.repetition import Repetition
    from quietnn.channels.reram import ReRAM
    from quietnn.channels.transmit import at_unit_gain, transmit
    from quietnn.channels.truncation import MantissaTruncation
    from quietnn.checkpoints.denoise import DenoisedCheckpoint, denoise_checkpoint
    from quietnn.checkpoints.inspect import Inspection, inspect_checkpoint
    from quietnn.checkpoints.temperatures import TunedTemperatures, read_temperatures, write_temperatures
    from quietnn.checkpoints.transmit import transmit_checkpoint
    from quietnn.checkpoints.workers import Streaming
    from quietnn.denoisers.affine import METHODS, AffineDenoiser, Temperatures, ml, mmse, mmse_p, mmse_pb
    from quietnn.denoisers.denoise import denoise
    from quietnn.denoisers.evidence import classification_loss
    from quietnn.denoisers.finetuning import FineTuned, finetune
    from quietnn.denoisers.posterior import Posterior, posterior
    from quietnn.denoisers.reception import Reception
    from quietnn.denoisers.whitened import PosteriorSettings
    from quietnn.errors import InfeasibleTemperatures, InvalidConfig, InvalidWeights, MissingData, QuietnnError
    from quietnn.noise_power.batch_norm import noise_power_from_batch_norm
    from quietnn.noise_power.estimate import NoisePower, noise_power_from_pilots, noise_power_from_receptions
    from quietnn.tasks.base import Examples, Task
    from quietnn.tasks.registry import load_task
    from quietnn.theory.family import Form, affine_coefficients
    from quietnn.tuning.gradient import GradientSettings, GradientTuning, tune_by_gradient
    from quietnn.tuning.result import Criterion, Trial, TuningResult
    from quietnn.tuning.score import Score
    from quietnn.tuning.tune import SubsetScore, tune
    from quietnn.weights import NORMALISATION_TYPES, WeightStatistics, layerwise, noisy_names, whole

__version__ = "0.1.0"

_HOMES = {
    "AWGN": "quietnn.channels.awgn",
    "AffineDenoiser": "quietnn.denoisers.affine",
    "AutoResult": "quietnn.automatic.result",
    "BlockFading": "quietnn.channels.fading",
    "CalibratedLayer": "quietnn.calibration.report",
    "CalibrationReport": "quietnn.calibration.report",
    "Channel": "quietnn.channels.base",
    "CodedDigital": "quietnn.channels.digital",
    "Criterion": "quietnn.tuning.result",
    "DenoisedCheckpoint": "quietnn.checkpoints.denoise",
    "ErrorMoments": "quietnn.channels.moments",
    "Examples": "quietnn.tasks.base",
    "FineTuned": "quietnn.denoisers.finetuning",
    "Form": "quietnn.theory.family",
    "GradientSettings": "quietnn.tuning.gradient",
    "GradientTuning": "quietnn.tuning.gradient",
    "InfeasibleTemperatures": "quietnn.errors",
    "Inspection": "quietnn.checkpoints.inspect",
    "InvalidConfig": "quietnn.errors",
    "InvalidWeights": "quietnn.errors",
    "METHODS": "quietnn.denoisers.affine",
    "MantissaTruncation": "quietnn.channels.truncation",
    "Medium": "quietnn.channels.base",
    "MissingData": "quietnn.errors",
    "NORMALISATION_TYPES": "quietnn.weights",
    "NoisePower": "quietnn.noise_power.estimate",
    "Observation": "quietnn.channels.base",
    "PCM": "quietnn.channels.pcm",
    "Posterior": "quietnn.denoisers.posterior",
    "PosteriorSettings": "quietnn.denoisers.whitened",
    "Power": "quietnn.channels.awgn",
    "Quantisation": "quietnn.channels.quantisation",
    "QuietnnError": "quietnn.errors",
    "ReRAM": "quietnn.channels.reram",
    "Reception": "quietnn.denoisers.reception",
    "Repetition": "quietnn.channels.repetition",
    "Score": "quietnn.tuning.score",
    "Streaming": "quietnn.checkpoints.workers",
    "SelfTrained": "quietnn.calibration.self_training",
    "SubsetScore": "quietnn.tuning.tune",
    "Task": "quietnn.tasks.base",
    "Temperatures": "quietnn.denoisers.affine",
    "Trial": "quietnn.tuning.result",
    "Tried": "quietnn.automatic.result",
    "TunedTemperatures": "quietnn.checkpoints.temperatures",
    "TuningResult": "quietnn.tuning.result",
    "WeightStatistics": "quietnn.weights",
    "affine_coefficients": "quietnn.theory.family",
    "at_unit_gain": "quietnn.channels.transmit",
    "auto": "quietnn.automatic.auto",
    "calibrate": "quietnn.calibration.calibrate",
    "calibrate_structured": "quietnn.calibration.structured",
    "calibrate_with_report": "quietnn.calibration.calibrate",
    "calibrated_starts": "quietnn.calibration.starts",
    "confidence_loss": "quietnn.calibration.self_training",
    "classification_loss": "quietnn.denoisers.evidence",
    "denoise": "quietnn.denoisers.denoise",
    "denoise_branches": "quietnn.calibration.branches",
    "denoise_checkpoint": "quietnn.checkpoints.denoise",
    "finetune": "quietnn.denoisers.finetuning",
    "inspect_checkpoint": "quietnn.checkpoints.inspect",
    "layerwise": "quietnn.weights",
    "load_task": "quietnn.tasks.registry",
    "medium_named": "quietnn.channels.named",
    "ml": "quietnn.denoisers.affine",
    "mmse": "quietnn.denoisers.affine",
    "mmse_p": "quietnn.denoisers.affine",
    "mmse_pb": "quietnn.denoisers.affine",
    "noise_power_from_batch_norm": "quietnn.noise_power.batch_norm",
    "noise_power_from_pilots": "quietnn.noise_power.estimate",
    "noise_power_from_receptions": "quietnn.noise_power.estimate",
    "noisy_names": "quietnn.weights",
    "posterior": "quietnn.denoisers.posterior",
    "read_temperatures": "quietnn.checkpoints.temperatures",
    "self_train": "quietnn.calibration.self_training",
    "transmit": "quietnn.channels.transmit",
    "transmit_checkpoint": "quietnn.checkpoints.transmit",
    "tune": "quietnn.tuning.tune",
    "tune_by_gradient": "quietnn.tuning.gradient",
    "whole": "quietnn.weights",
    "write_temperatures": "quietnn.checkpoints.temperatures",
}

__all__ = [
    "AWGN",
    "METHODS",
    "NORMALISATION_TYPES",
    "PCM",
    "AffineDenoiser",
    "AutoResult",
    "BlockFading",
    "CalibratedLayer",
    "CalibrationReport",
    "Channel",
    "CodedDigital",
    "Criterion",
    "DenoisedCheckpoint",
    "ErrorMoments",
    "Examples",
    "FineTuned",
    "Form",
    "GradientSettings",
    "GradientTuning",
    "InfeasibleTemperatures",
    "Inspection",
    "InvalidConfig",
    "InvalidWeights",
    "MantissaTruncation",
    "Medium",
    "MissingData",
    "NoisePower",
    "Observation",
    "Posterior",
    "PosteriorSettings",
    "Power",
    "Quantisation",
    "QuietnnError",
    "ReRAM",
    "Reception",
    "Repetition",
    "Score",
    "SelfTrained",
    "Streaming",
    "SubsetScore",
    "Task",
    "Temperatures",
    "Trial",
    "Tried",
    "TunedTemperatures",
    "TuningResult",
    "WeightStatistics",
    "affine_coefficients",
    "at_unit_gain",
    "auto",
    "calibrate",
    "calibrate_structured",
    "calibrate_with_report",
    "calibrated_starts",
    "classification_loss",
    "confidence_loss",
    "denoise",
    "denoise_branches",
    "denoise_checkpoint",
    "finetune",
    "inspect_checkpoint",
    "layerwise",
    "load_task",
    "medium_named",
    "ml",
    "mmse",
    "mmse_p",
    "mmse_pb",
    "noise_power_from_batch_norm",
    "noise_power_from_pilots",
    "noise_power_from_receptions",
    "noisy_names",
    "posterior",
    "read_temperatures",
    "self_train",
    "transmit",
    "transmit_checkpoint",
    "tune",
    "tune_by_gradient",
    "whole",
    "write_temperatures",
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
