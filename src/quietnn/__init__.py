"""quietnn repairs neural networks whose weights arrived with noise on them.

>>> import torch, quietnn
>>> model = torch.nn.Linear(64, 64)
>>> observation = quietnn.transmit(model, wnr_db=0.0, seed=0)
>>> estimate = quietnn.denoise(observation).model

The public names are imported when they are first used, so that what needs no torch (reports, theory, the command
line's help) starts without it.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quietnn.channels.awgn import AWGN as AWGN
    from quietnn.channels.base import Channel as Channel
    from quietnn.channels.table import channel_named as channel_named
    from quietnn.channels.transmit import transmit as transmit
    from quietnn.checkpoints.denoise import denoise_checkpoint as denoise_checkpoint
    from quietnn.checkpoints.inspect import inspect_checkpoint as inspect_checkpoint
    from quietnn.checkpoints.transmit import transmit_checkpoint as transmit_checkpoint
    from quietnn.errors import QuietnnError as QuietnnError
    from quietnn.evidence import Evidence as Evidence
    from quietnn.methods import Method as Method
    from quietnn.moments import WeightStatistics as WeightStatistics
    from quietnn.noise_power.batch_norm import noise_power_from_batch_norm as noise_power_from_batch_norm
    from quietnn.noise_power.estimate import noise_power_from_pilots as noise_power_from_pilots
    from quietnn.noise_power.estimate import noise_power_from_receptions as noise_power_from_receptions
    from quietnn.observation import Observation as Observation
    from quietnn.observation import observe as observe
    from quietnn.repairs.affine import AffineDenoiser as AffineDenoiser
    from quietnn.repairs.affine import Temperatures as Temperatures
    from quietnn.repairs.base import REPAIRS as REPAIRS
    from quietnn.repairs.base import Repair as Repair
    from quietnn.repairs.base import Repaired as Repaired
    from quietnn.repairs.base import register as register
    from quietnn.repairs.batchnorm.calibrate import calibrate as calibrate
    from quietnn.repairs.batchnorm.calibrate import calibrate_structured as calibrate_structured
    from quietnn.repairs.batchnorm.calibrate import re_estimate as re_estimate
    from quietnn.repairs.beside.beside import Beside as Beside
    from quietnn.repairs.branches import denoise_branches as denoise_branches
    from quietnn.repairs.denoise import denoise as denoise
    from quietnn.repairs.finetuning import finetune as finetune
    from quietnn.repairs.fitting.whitened import PosteriorSettings as PosteriorSettings
    from quietnn.repairs.front import auto as auto
    from quietnn.repairs.front import repair as repair
    from quietnn.repairs.posterior import posterior as posterior
    from quietnn.repairs.self_training import self_train as self_train
    from quietnn.repairs.temperatures.tune import Search as Search
    from quietnn.repairs.temperatures.tune import tune as tune
    from quietnn.score import Score as Score
    from quietnn.tasks.base import Examples as Examples
    from quietnn.tasks.base import Task as Task
    from quietnn.tasks.registry import load_task as load_task
    from quietnn.weights import noisy_names as noisy_names

__version__ = "0.1.0"

_HOMES = {
    "AWGN": "quietnn.channels.awgn",
    "AffineDenoiser": "quietnn.repairs.affine",
    "Beside": "quietnn.repairs.beside.beside",
    "Channel": "quietnn.channels.base",
    "Evidence": "quietnn.evidence",
    "Examples": "quietnn.tasks.base",
    "Method": "quietnn.methods",
    "Observation": "quietnn.observation",
    "PosteriorSettings": "quietnn.repairs.fitting.whitened",
    "QuietnnError": "quietnn.errors",
    "REPAIRS": "quietnn.repairs.base",
    "Repair": "quietnn.repairs.base",
    "Repaired": "quietnn.repairs.base",
    "Score": "quietnn.score",
    "Search": "quietnn.repairs.temperatures.tune",
    "Task": "quietnn.tasks.base",
    "Temperatures": "quietnn.repairs.affine",
    "WeightStatistics": "quietnn.moments",
    "auto": "quietnn.repairs.front",
    "calibrate": "quietnn.repairs.batchnorm.calibrate",
    "calibrate_structured": "quietnn.repairs.batchnorm.calibrate",
    "channel_named": "quietnn.channels.table",
    "denoise": "quietnn.repairs.denoise",
    "denoise_branches": "quietnn.repairs.branches",
    "denoise_checkpoint": "quietnn.checkpoints.denoise",
    "finetune": "quietnn.repairs.finetuning",
    "inspect_checkpoint": "quietnn.checkpoints.inspect",
    "load_task": "quietnn.tasks.registry",
    "noise_power_from_batch_norm": "quietnn.noise_power.batch_norm",
    "noise_power_from_pilots": "quietnn.noise_power.estimate",
    "noise_power_from_receptions": "quietnn.noise_power.estimate",
    "noisy_names": "quietnn.weights",
    "observe": "quietnn.observation",
    "posterior": "quietnn.repairs.posterior",
    "re_estimate": "quietnn.repairs.batchnorm.calibrate",
    "register": "quietnn.repairs.base",
    "repair": "quietnn.repairs.front",
    "self_train": "quietnn.repairs.self_training",
    "transmit": "quietnn.channels.transmit",
    "transmit_checkpoint": "quietnn.checkpoints.transmit",
    "tune": "quietnn.repairs.temperatures.tune",
}
"""Every public name and the module it lives in."""

_FORMER = {
    "AutoResult": "quietnn.repairs.base:Repaired",
    "BlockFading": "quietnn.channels.radio:BlockFading",
    "CalibratedLayer": "quietnn.repairs.batchnorm.rule:CalibratedLayer",
    "CalibrationReport": "quietnn.repairs.batchnorm.rule:CalibrationReport",
    "CodedDigital": "quietnn.channels.digital:CodedDigital",
    "Criterion": "quietnn.repairs.temperatures.result:Criterion",
    "DenoisedCheckpoint": "quietnn.checkpoints.denoise:DenoisedCheckpoint",
    "ErrorMoments": "quietnn.channels.moments:ErrorMoments",
    "FineTuned": "quietnn.repairs.base:Repaired",
    "Form": "quietnn.theory.family:Form",
    "GradientSettings": "quietnn.repairs.temperatures.gradient:GradientSettings",
    "GradientTuning": "quietnn.repairs.temperatures.gradient:GradientTuning",
    "InfeasibleTemperatures": "quietnn.errors:InfeasibleTemperatures",
    "Inspection": "quietnn.checkpoints.inspect:Inspection",
    "InvalidConfig": "quietnn.errors:InvalidConfig",
    "InvalidWeights": "quietnn.errors:InvalidWeights",
    "MantissaTruncation": "quietnn.channels.quantisation:MantissaTruncation",
    "Medium": "quietnn.channels.base:Channel",
    "MissingData": "quietnn.errors:MissingData",
    "NORMALISATION_TYPES": "quietnn.weights:NORMALISATION_TYPES",
    "NoisePower": "quietnn.noise_power.estimate:NoisePower",
    "PCM": "quietnn.channels.memories:PCM",
    "Posterior": "quietnn.repairs.base:Repaired",
    "Power": "quietnn.channels.awgn:Power",
    "Quantisation": "quietnn.channels.quantisation:Quantisation",
    "ReRAM": "quietnn.channels.memories:ReRAM",
    "Reception": "quietnn.repairs.grouped:GroupedWeights",
    "Repetition": "quietnn.channels.repetition:Repetition",
    "SelfTrained": "quietnn.repairs.base:Repaired",
    "Streaming": "quietnn.checkpoints.workers:Streaming",
    "SubsetScore": "quietnn.score:SubsetScore",
    "Trial": "quietnn.repairs.temperatures.result:Trial",
    "Tried": "quietnn.repairs.choice:Tried",
    "TunedTemperatures": "quietnn.checkpoints.temperatures:TunedTemperatures",
    "TuningResult": "quietnn.repairs.temperatures.result:TuningResult",
    "affine_coefficients": "quietnn.theory.family:affine_coefficients",
    "confidence_loss": "quietnn.repairs.self_training:confidence_loss",
    "layerwise": "quietnn.weights:layerwise",
    "medium_named": "quietnn.channels.table:channel_named",
    "ml": "quietnn.repairs.affine:ml",
    "mmse": "quietnn.repairs.affine:mmse",
    "mmse_p": "quietnn.repairs.affine:mmse_p",
    "mmse_pb": "quietnn.repairs.affine:mmse_pb",
    "read_temperatures": "quietnn.checkpoints.temperatures:read_temperatures",
    "tune_by_gradient": "quietnn.repairs.temperatures.gradient:tune_by_gradient",
    "whole": "quietnn.weights:whole",
    "write_temperatures": "quietnn.checkpoints.temperatures:write_temperatures",
}
"""Names that were public in version 0.1 and where they are now; they go with version 0.3."""

_GONE = {
    "METHODS": "quietnn.REPAIRS",
    "at_unit_gain": "observation.at_unit_gain()",
    "calibrate_with_report": 'calibrate(...).details["report"]',
    "calibrated_starts": "quietnn.posterior(...), which makes them",
    "classification_loss": "quietnn.Evidence(inputs, labels)",
}
"""Names that were public in version 0.1 and have no heir of the same shape."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name from the module it lives in; a former one with a warning."""
    if name in _FORMER:
        module, _, now = _FORMER[name].partition(":")
        warnings.warn(f"quietnn.{name} is now {module}.{now}; import it from there", DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), now)
    if name not in _HOMES:
        instead = f"; {_GONE[name]} does it now" if name in _GONE else ""
        raise AttributeError(f"module 'quietnn' has no attribute {name!r}{instead}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *__all__])
