"""What was done to a file, kept in the file: one JSON list under the metadata key `quietnn`."""

import json
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
    return {**kept, KEY: json.dumps(steps)}


def history(metadata: Mapping[str, str] | None) -> list[Any]:
    """The steps recorded in a file's metadata; text that is no such list counts as one step.

    >>> history(None)
    []
    """
    text = (metadata or {}).get(KEY)
    if text is None:
        return []
    try:
        steps = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    return steps if isinstance(steps, list) else [steps]
