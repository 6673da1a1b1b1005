"""What was done to a file, kept in the file: one JSON list under the metadata key `quietnn`."""

import json
import math
from collections.abc import Mapping
from typing import Any

import quietnn

KEY = "quietnn"
Step = Mapping[str, Any]
"""One thing done to the weights: its verb, its numbers. No time and no paths, so equal runs give equal bytes."""


def with_step(metadata: Mapping[str, str] | None, step: Step) -> dict[str, str]:
    """The metadata with one step more; what was there stays.

    A file without any metadata also gets `format: pt`, which loaders expect once there are some.

    >>> with_step({"format": "pt"}, {"verb": "transmit", "seed": 1})["quietnn"]
    '[{"version": "0.1.0", "verb": "transmit", "seed": 1}]'
    """
    kept = {"format": "pt"} if metadata is None else dict(metadata)
    steps = [*history(metadata), {"version": quietnn.__version__, **step}]
    return {**kept, KEY: json.dumps(_as_json(steps))}


def history(metadata: Mapping[str, str] | None) -> list[Any]:
    """The steps recorded in a file's metadata; text that is no such list counts as one step, NaN as nothing.

    >>> history(None)
    []
    """
    text = (metadata or {}).get(KEY)
    if text is None:
        return []
    try:
        steps = json.loads(text, parse_constant=lambda constant: None)
    except (ValueError, RecursionError):
        return [text]
    return steps if isinstance(steps, list) else [steps]


def _as_json(value: Any) -> Any:
    """The same with None for numbers that JSON does not know, such as the WNR of a channel without noise."""
    if isinstance(value, Mapping):
        return {key: _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
