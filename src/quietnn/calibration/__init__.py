"""Normalisation statistics that fit the noisy weights, from a few inputs without labels."""
