"""The statistics of BatchNorm, fitted to noisy weights."""
