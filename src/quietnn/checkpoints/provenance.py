"""What was done to a file, kept in the file: one JSON list under the metadata key `quietnn`."""

import json
import math
from collections.abc import Mapping
from typing import Any

import quietnn

KEY = "quietnn"
_MAX_DEPTH = 20

Step = Mapping[str, Any]
"""One thing done to the weights: its verb, its numbers. No time and no paths, so equal runs give equal bytes."""


def with_step(metadata: Mapping[str, str] | None, step: Step) -> dict[str, str]:
    """The metadata with one step more; what was there stays.

    A file whose metadata tell no format also gets `format: pt`, which loaders expect once there are some.

    >>> with_step({"format": "pt"}, {"verb": "transmit", "seed": 1})["quietnn"]
    '[{"version": "0.1.0", "verb": "transmit", "seed": 1}]'
    """
    steps = [*history(metadata), _as_json({"version": quietnn.__version__, **step})]
    return {"format": "pt", **(metadata or {}), KEY: json.dumps(steps)}


def history(metadata: Mapping[str, str] | None) -> list[Any]:
    """The steps recorded in a file's metadata.

    Text that is no such list, or is nested too deeply, counts as one step; numbers that are not finite as None.

    >>> history(None)
    []
    """
    text = (metadata or {}).get(KEY)
    if text is None:
        return []
    try:
        steps = _as_json(json.loads(text))
    except (ValueError, RecursionError):
        return [text]
    return steps if isinstance(steps, list) else [steps]


def _as_json(value: Any, depth: int = 0) -> Any:
    """The same with None for numbers that JSON does not know, such as the WNR of a channel without noise."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, Mapping):
        return {key: _as_json(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner, depth + 1) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
