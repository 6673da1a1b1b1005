"""quietnn repairs neural networks whose weights arrived with noise on them.

>>> import torch, quietnn
>>> model = torch.nn.Linear(64, 64)
>>> observation = quietnn.transmit(model, wnr_db=0.0, seed=0)
>>> estimate = quietnn.denoise(observation.received, noise_variance=observation.noise_variance)
"""

from quietnn.channels.awgn import AWGN, Power
from quietnn.channels.base import Channel, Observation
from quietnn.channels.transmit import transmit
from quietnn.denoisers.affine import METHODS, AffineDenoiser, Temperatures, ml, mmse, mmse_p, mmse_pb
from quietnn.denoisers.denoise import denoise
from quietnn.denoisers.reception import Reception
from quietnn.errors import InfeasibleTemperatures, InvalidConfig, InvalidWeights, MissingData, QuietnnError
from quietnn.theory.family import Form, affine_coefficients
from quietnn.tuning.result import Criterion, Trial, TuningResult
from quietnn.tuning.score import Score
from quietnn.tuning.tune import tune
from quietnn.weights import NORMALISATION_TYPES, WeightStatistics, layerwise, noisy_names, whole

__version__ = "0.1.0"

__all__ = [
    "AWGN",
    "METHODS",
    "NORMALISATION_TYPES",
    "AffineDenoiser",
    "Channel",
    "Criterion",
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
    "Temperatures",
    "Trial",
    "TuningResult",
    "WeightStatistics",
    "affine_coefficients",
    "denoise",
    "layerwise",
    "ml",
    "mmse",
    "mmse_p",
    "mmse_pb",
    "noisy_names",
    "transmit",
    "tune",
    "whole",
]
