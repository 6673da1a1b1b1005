"""The demonstration: the embedded digits network under noise, with every denoiser of the paper."""

from quietnn.experiments.noisy_inference import NoisyInference

DEMO = NoisyInference(
    name="digits",
    task="digits",
    wnr_db=(0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0),
    num_draws=6,
    methods=("ml", "mmse", "mmse_layerwise", "mmse_p", "mmse_pb", "mmse_pb_layerwise", "calibrated"),
    num_tuning_examples=100,
)
"""The same as `configs/digits.toml`, for those who have the package and not the repository."""
