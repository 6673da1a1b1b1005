"""Noisy training: devices train one network together, and their updates meet on the air."""
