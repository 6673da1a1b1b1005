"""What was done to a file, kept in the file: one JSON list under the metadata key `quietnn`.

A receiver who knows the channel takes the noise from there: that of the last transmission.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from torch import Tensor

import quietnn
from quietnn.errors import InvalidConfig
from quietnn.observation import undone
from quietnn.theory.family import check_variance

KEY = "quietnn"
_MAX_DEPTH = 20
_REMEDY = "give --noise-variance or --wnr-db instead"

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


@dataclass(frozen=True)
class RecordedNoise:
    """What the last transmission tells of itself: `r = gain (w + z) + offset`.

    The variance of `z` is one for the model or by tensor name. Gains of one and offsets of zero are left out.
    """

    variance: float | Mapping[str, float]
    gain: Mapping[str, float] = field(default_factory=dict)
    offset: Mapping[str, float] = field(default_factory=dict)

    def undone(self, name: str, received: Tensor) -> Tensor:
        """A stretch of a tensor at unit gain; itself where there is nothing to undo."""
        if name not in self.gain and name not in self.offset:
            return received
        return undone(received, self.gain.get(name, 1.0), self.offset.get(name, 0.0))


def recorded_names(history: Sequence[Any]) -> list[str]:
    """The names of the tensors that the noise fell on, by the last entry of a file's history.

    >>> recorded_names([{"verb": "transmit", "tensors": ["w"], "noise_variance": 0.1}])
    ['w']
    """
    names = _transmission(history).get("tensors")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidConfig(f"the file does not record which tensors the noise fell on; {_REMEDY}")
    return names


def recorded_noise(history: Sequence[Any], names: Sequence[str]) -> RecordedNoise:
    """The noise on the named tensors by the last entry of a file's history.

    >>> recorded_noise([{"verb": "transmit", "tensors": ["w"], "noise_variance": 0.1}], ["w"])
    RecordedNoise(variance=0.1, gain={}, offset={})
    """
    step, sent = _transmission(history), set(recorded_names(history))
    unsent = [name for name in names if name not in sent]
    if unsent:
        raise InvalidConfig(f"the file records no noise on {unsent[0]!r}; leave it out with --exclude '{unsent[0]}'")
    for earlier in takewhile(_sent, reversed(history[:-1])):
        twice = _sent(earlier) & set(names)
        if twice:
            raise InvalidConfig(f"{min(twice)!r} met noise more than once; add the variances up and {_REMEDY}")
    if "noise_variance_by_tensor" not in step:
        return RecordedNoise(_number(step.get("noise_variance"), "noise variance"))
    variances = _by_tensor(step["noise_variance_by_tensor"], names, "noise variance")
    gains = _by_tensor(step.get("gain_by_tensor"), names, "gain")
    wrong = [name for name, gain in gains.items() if not gain]
    if wrong:
        raise InvalidConfig(f"the file records that nothing came through of {wrong[0]!r}; leave it out with --exclude")
    # Older files tell no offset.
    offsets = _by_tensor(step["offset_by_tensor"], names, "offset") if "offset_by_tensor" in step else {}
    gains = {name: gain for name, gain in gains.items() if gain != 1.0}
    return RecordedNoise(variances, gains, {name: offset for name, offset in offsets.items() if offset})


def check_new_noise(history: Sequence[Any], names: Sequence[str], seed: int) -> None:
    """Refuse to send tensors with a seed that they met before: by seed and name, it would be the same noise."""
    for step in history:
        again = _sent(step) & set(names)
        if again and step.get("seed") == seed:
            raise InvalidConfig(
                f"{min(again)!r} met the noise of seed {seed} before, and would meet it again; take another --seed"
            )


def _sent(step: Any) -> set[str]:
    """The tensors that a step sent through noise, as far as it tells."""
    if not isinstance(step, Mapping) or step.get("verb") != "transmit":
        return set()
    names = step.get("tensors")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _transmission(history: Sequence[Any]) -> Mapping[str, Any]:
    step = history[-1] if history else None
    if not isinstance(step, Mapping) or step.get("verb") != "transmit":
        told = f"its last entry is {step.get('verb')!r}" if isinstance(step, Mapping) else "there is no entry"
        raise InvalidConfig(f"the file records no transmission ({told}); {_REMEDY}")
    return step


def _by_tensor(recorded: Any, names: Sequence[str], what: str) -> dict[str, float]:
    if not isinstance(recorded, Mapping):
        raise InvalidConfig(f"the file records no {what} by tensor; {_REMEDY}")
    missing = [name for name in names if name not in recorded]
    if missing:
        raise InvalidConfig(
            f"the file records no {what} of {missing[0]!r}; choose what was sent with --noisy, --exclude"
        )
    return {name: _number(recorded[name], f"{what} of {name}") for name in names}


def _number(value: Any, what: str) -> float:
    number = finite_number(value)
    if number is None:
        raise InvalidConfig(f"the file records {str(value)[:40]!r} as {what}, which is no number; {_REMEDY}")
    if "variance" in what:
        check_variance(number, f"the recorded {what}")
    return number


def finite_number(value: Any) -> float | None:
    """The value as a float; None if it is no number, not finite, or larger than a float can be.

    >>> finite_number(3), finite_number("3"), finite_number(True), finite_number(10**400)
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
