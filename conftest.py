"""Modules whose optional package is not installed have no doctests to collect."""

from importlib.util import find_spec

collect_ignore_glob = (
    [] if find_spec("flwr") else ["src/quietnn/federated/flower/*.py", "tests/federated/flower/hostile.py"]
)
