"""The demonstration: the embedded digits network under noise, with every denoiser of the paper."""

from quietnn.experiments.config import load_config, shipped_configs
from quietnn.experiments.noisy_inference import NoisyInference

DEMO = load_config(NoisyInference, shipped_configs()["digits"])
"""The sweep that `quietnn sweep digits` runs too."""
