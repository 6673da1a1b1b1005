"""Temperatures in a file: what `quietnn tune` found for a network, for `quietnn denoise` to use."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietnn.checkpoints.history import finite_number
from quietnn.errors import InvalidConfig, MissingData
from quietnn.files import replacing_file
from quietnn.repairs.affine import Temperatures
from quietnn.theory.family import check_variance

FORMAT = "quietnn temperatures"
VERSION = 1
_GROUPS = ("whole", "layerwise")


@dataclass(frozen=True)
class TunedTemperatures:
    """A pair `(lambda', beta)` for each group.

    Attributes:
        groups: `"whole"` or `"layerwise"`.
        temperatures: the pairs, by group name.
        noise_variance: `sigma_z^2` that they were found at.
        found: how: task, number of examples, score. For the reader; nothing depends on it.
    """

    groups: str
    temperatures: Mapping[str, Temperatures]
    noise_variance: float
    found: Mapping[str, Any] = field(default_factory=dict)


def write_temperatures(path: Path, tuned: TunedTemperatures) -> None:
    """Write the file as JSON, whole or not at all."""
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "groups": tuned.groups,
        "noise_variance": tuned.noise_variance,
        "found": dict(tuned.found),
        "temperatures": {
            group: {"lambda_prime": pair.lambda_prime, "beta": pair.beta} for group, pair in tuned.temperatures.items()
        },
    }
    with replacing_file(path) as partial:
        partial.write_text(json.dumps(fields, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def check_writable(path: Path, *, source: Path, overwrite: bool) -> None:
    """Refuse a place for the file before the search that would fill it, the file that is read above all."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise MissingData(f"there is no folder {folder} to write {path.name} into; make it first")
    if path.exists() and source.exists() and path.samefile(source):
        raise InvalidConfig(f"{path} is the input itself; write to another name")
    if path.is_dir():
        raise InvalidConfig(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise InvalidConfig(f"{path} is there already; choose another name, or replace it with --overwrite")


def read_temperatures(path: Path) -> TunedTemperatures:
    """Read and check such a file."""
    if not path.is_file():
        raise MissingData(f"there is no temperatures file {path}; make one with quietnn tune")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path} is not JSON ({error}); make it again with quietnn tune") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise InvalidConfig(f"{path} is not a temperatures file; make one with quietnn tune")
    if fields.get("version") != VERSION:
        raise InvalidConfig(f"{path} has version {fields.get('version')!r}, this quietnn reads {VERSION}; update it")
    if fields.get("groups") not in _GROUPS:
        raise InvalidConfig(f"{path} has groups {fields.get('groups')!r}; they are one of {', '.join(_GROUPS)}")
    pairs = fields.get("temperatures")
    if not isinstance(pairs, dict) or not pairs:
        raise InvalidConfig(f"{path} has no temperatures; make it again with quietnn tune")
    noise_variance = _number(path, "noise_variance", fields.get("noise_variance"))
    check_variance(noise_variance, "noise_variance")
    temperatures = {group: _pair(path, group, pair) for group, pair in pairs.items()}
    found = fields.get("found")
    return TunedTemperatures(fields["groups"], temperatures, noise_variance, found if isinstance(found, dict) else {})


def _pair(path: Path, group: str, pair: Any) -> Temperatures:
    if not isinstance(pair, dict) or pair.keys() != {"lambda_prime", "beta"}:
        raise InvalidConfig(f"{path}: group {group!r} needs lambda_prime and beta and nothing else")
    return Temperatures(*(_number(path, f"{key} of {group!r}", pair[key]) for key in ("lambda_prime", "beta")))


def _number(path: Path, name: str, value: Any) -> float:
    number = finite_number(value)
    if number is None:
        raise InvalidConfig(f"{path}: {name} is {str(value)[:40]!r}; it must be a finite number")
    return number
