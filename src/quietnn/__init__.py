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
    from quietnn.errors import InfeasibleTemperatures, InvalidConfig, InvalidWeights, MissingData, QuietnnError
    from quietnn.noise_power.batch_norm import noise_power_from_batch_norm
    from quietnn.noise_power.estimate import NoisePower, noise_power_from_pilots, noise_power_from_receptions
    from quietnn.repairs.affine import METHODS, AffineDenoiser, Temperatures, ml, mmse, mmse_p, mmse_pb
    from quietnn.repairs.auto import auto
    from quietnn.repairs.auto_result import AutoResult, Tried
    from quietnn.repairs.batchnorm.calibrate import calibrate, calibrate_with_report
    from quietnn.repairs.batchnorm.report import CalibratedLayer, CalibrationReport
    from quietnn.repairs.branches import denoise_branches
    from quietnn.repairs.calibrated_starts import calibrated_starts
    from quietnn.repairs.denoise import denoise
    from quietnn.repairs.finetuning import FineTuned, finetune
    from quietnn.repairs.fitting.scratch import classification_loss
    from quietnn.repairs.fitting.whitened import PosteriorSettings
    from quietnn.repairs.grouped import Reception
    from quietnn.repairs.posterior import Posterior, posterior
    from quietnn.repairs.self_training import SelfTrained, confidence_loss, self_train
    from quietnn.repairs.structured import calibrate_structured
    from quietnn.repairs.temperatures.gradient import GradientSettings, GradientTuning, tune_by_gradient
    from quietnn.repairs.temperatures.result import Criterion, Trial, TuningResult
    from quietnn.repairs.temperatures.score import Score
    from quietnn.repairs.temperatures.tune import SubsetScore, tune
    from quietnn.tasks.base import Examples, Task
    from quietnn.tasks.registry import load_task
    from quietnn.theory.family import Form, affine_coefficients
    from quietnn.weights import NORMALISATION_TYPES, WeightStatistics, layerwise, noisy_names, whole

__version__ = "0.1.0"

_HOMES = {
    "AWGN": "quietnn.channels.awgn",
    "AffineDenoiser": "quietnn.repairs.affine",
    "AutoResult": "quietnn.repairs.auto_result",
    "BlockFading": "quietnn.channels.fading",
    "CalibratedLayer": "quietnn.repairs.batchnorm.report",
    "CalibrationReport": "quietnn.repairs.batchnorm.report",
    "Channel": "quietnn.channels.base",
    "CodedDigital": "quietnn.channels.digital",
    "Criterion": "quietnn.repairs.temperatures.result",
    "DenoisedCheckpoint": "quietnn.checkpoints.denoise",
    "ErrorMoments": "quietnn.channels.moments",
    "Examples": "quietnn.tasks.base",
    "FineTuned": "quietnn.repairs.finetuning",
    "Form": "quietnn.theory.family",
    "GradientSettings": "quietnn.repairs.temperatures.gradient",
    "GradientTuning": "quietnn.repairs.temperatures.gradient",
    "InfeasibleTemperatures": "quietnn.errors",
    "Inspection": "quietnn.checkpoints.inspect",
    "InvalidConfig": "quietnn.errors",
    "InvalidWeights": "quietnn.errors",
    "METHODS": "quietnn.repairs.affine",
    "MantissaTruncation": "quietnn.channels.truncation",
    "Medium": "quietnn.channels.base",
    "MissingData": "quietnn.errors",
    "NORMALISATION_TYPES": "quietnn.weights",
    "NoisePower": "quietnn.noise_power.estimate",
    "Observation": "quietnn.channels.base",
    "PCM": "quietnn.channels.pcm",
    "Posterior": "quietnn.repairs.posterior",
    "PosteriorSettings": "quietnn.repairs.fitting.whitened",
    "Power": "quietnn.channels.awgn",
    "Quantisation": "quietnn.channels.quantisation",
    "QuietnnError": "quietnn.errors",
    "ReRAM": "quietnn.channels.reram",
    "Reception": "quietnn.repairs.grouped",
    "Repetition": "quietnn.channels.repetition",
    "Score": "quietnn.repairs.temperatures.score",
    "Streaming": "quietnn.checkpoints.workers",
    "SelfTrained": "quietnn.repairs.self_training",
    "SubsetScore": "quietnn.repairs.temperatures.tune",
    "Task": "quietnn.tasks.base",
    "Temperatures": "quietnn.repairs.affine",
    "Trial": "quietnn.repairs.temperatures.result",
    "Tried": "quietnn.repairs.auto_result",
    "TunedTemperatures": "quietnn.checkpoints.temperatures",
    "TuningResult": "quietnn.repairs.temperatures.result",
    "WeightStatistics": "quietnn.weights",
    "affine_coefficients": "quietnn.theory.family",
    "at_unit_gain": "quietnn.channels.transmit",
    "auto": "quietnn.repairs.auto",
    "calibrate": "quietnn.repairs.batchnorm.calibrate",
    "calibrate_structured": "quietnn.repairs.structured",
    "calibrate_with_report": "quietnn.repairs.batchnorm.calibrate",
    "calibrated_starts": "quietnn.repairs.calibrated_starts",
    "confidence_loss": "quietnn.repairs.self_training",
    "classification_loss": "quietnn.repairs.fitting.scratch",
    "denoise": "quietnn.repairs.denoise",
    "denoise_branches": "quietnn.repairs.branches",
    "denoise_checkpoint": "quietnn.checkpoints.denoise",
    "finetune": "quietnn.repairs.finetuning",
    "inspect_checkpoint": "quietnn.checkpoints.inspect",
    "layerwise": "quietnn.weights",
    "load_task": "quietnn.tasks.registry",
    "medium_named": "quietnn.channels.named",
    "ml": "quietnn.repairs.affine",
    "mmse": "quietnn.repairs.affine",
    "mmse_p": "quietnn.repairs.affine",
    "mmse_pb": "quietnn.repairs.affine",
    "noise_power_from_batch_norm": "quietnn.noise_power.batch_norm",
    "noise_power_from_pilots": "quietnn.noise_power.estimate",
    "noise_power_from_receptions": "quietnn.noise_power.estimate",
    "noisy_names": "quietnn.weights",
    "posterior": "quietnn.repairs.posterior",
    "read_temperatures": "quietnn.checkpoints.temperatures",
    "self_train": "quietnn.repairs.self_training",
    "transmit": "quietnn.channels.transmit",
    "transmit_checkpoint": "quietnn.checkpoints.transmit",
    "tune": "quietnn.repairs.temperatures.tune",
    "tune_by_gradient": "quietnn.repairs.temperatures.gradient",
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
