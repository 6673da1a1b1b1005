"""Configurations: a frozen dataclass from a TOML file, with a clear word about every key that does not fit."""

import dataclasses
import difflib
import json
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import quietnn
from quietnn.errors import InvalidConfig, MissingData, suggest
from quietnn.records import MOST_RECORDS

Config = TypeVar("Config")

_SHIPPED = Path(quietnn.__file__).parent / "configs"
_LARGEST_INT = 2**63 - 1


def load_config(kind: type[Config], path: Path, *, preset: str | None = None, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration from a TOML file, or the ready-made one of that name.

    Top-level keys are the configuration; a table `[presets.NAME]` replaces some of them when that preset is
    chosen, and each override `key=value` (the value in TOML, or a bare word) replaces one more.
    """
    path = find_config(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not TOML, not text, numbers and nests without end
        raise InvalidConfig(f"{path} is not valid TOML: {error}") from error
    presets = values.pop("presets", {})
    if not isinstance(presets, dict) or not all(isinstance(table, dict) for table in presets.values()):
        raise InvalidConfig(f"{path}: presets are tables; write [presets.NAME] above the keys of each")
    if preset is not None:
        if preset not in presets:
            known = suggest(preset, presets) if presets else "it has none at all; leave --preset out"
            raise InvalidConfig(f"{path} has no preset {preset!r}; {known}")
        values |= presets[preset]
    for override in overrides:
        values |= _override(override)
    return from_mapping(kind, values, source=str(path))


def shipped_configs() -> dict[str, Path]:
    """The configurations that come with quietnn, by name.

    >>> "digits" in shipped_configs()
    True
    """
    return {path.stem: path for path in sorted(_SHIPPED.glob("*.toml"))}


def find_config(path: Path) -> Path:
    """A file of the user's, or else the ready-made configuration of that name.

    >>> find_config(Path("configs/digits.toml")) == find_config(Path("digits")) == shipped_configs()["digits"]
    True
    """
    if path.is_file():
        return path
    shipped = shipped_configs()
    name = path.name.removesuffix(".toml")
    if path.parent in (Path(), Path(_SHIPPED.name)) and name in shipped:
        return shipped[name]
    near = difflib.get_close_matches(name, shipped, n=1)
    raise MissingData(
        f"there is no configuration {path}; {f'did you mean {near[0]!r}? ' if near else ''}"
        "quietnn configs lists the ready-made ones"
    )


def _override(override: str) -> dict[str, Any]:
    """One `key=value`. A path or a word may stand without the quotes that TOML wants and a shell takes away."""
    key, _, text = override.partition("=")
    try:
        return tomllib.loads(f"{key} = {text}")
    except (ValueError, RecursionError) as error:
        if key.isidentifier() and re.fullmatch(r"[A-Za-z_./~][^\s\"'=,;{}\[\]]*", text):
            return {key: text}
        raise InvalidConfig(f"--set {override!r} is not KEY=VALUE with a TOML value: {error}") from error


def from_mapping(kind: type[Config], values: Mapping[str, Any], *, source: str) -> Config:
    """Build a configuration from plain values, checking names and types."""
    assert dataclasses.is_dataclass(kind)  # a mistake of ours
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in fields:
            raise InvalidConfig(f"{source}: unknown key {key!r}; {suggest(key, fields)}")
    for name, field in fields.items():
        if name not in values and field.default is dataclasses.MISSING:
            raise InvalidConfig(f"{source}: the key {name!r} is missing; add it")
    return kind(**{key: _convert(value, hints[key], f"{source}: {key}") for key, value in values.items()})


def to_mapping(config: Any) -> dict[str, Any]:
    """The configuration as plain JSON-able values."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return values


def check_work(config: Any, num_records: int, *, at_least_one: Sequence[str]) -> None:
    """Refuse absurd work before any of it is done: a count, or records, that no run can have."""
    for name in at_least_one:
        if getattr(config, name) < 1:
            raise InvalidConfig(f"{name} is {getattr(config, name)}; it must be 1 or more")
    for name, value in dataclasses.asdict(config).items():
        if name.startswith("num_") and value is not None and value > MOST_RECORDS:
            raise InvalidConfig(f"{name} is {value:,}; it can be {MOST_RECORDS:,} at most")
    if num_records > MOST_RECORDS:
        raise InvalidConfig(
            f"that is {num_records:,} records, and a run has {MOST_RECORDS:,} at most; take fewer WNRs, methods or "
            "draws (num_draws), or split them into several runs"
        )


def _convert(value: Any, hint: Any, where: str) -> Any:
    """The value in the type of the field; int is taken for float, a list for a tuple."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InvalidConfig(f"{where} is {value!r}; give a list in square brackets")
        return tuple(_convert(item, typing.get_args(hint)[0], where) for item in value)
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        raise InvalidConfig(f"{where} is a whole number of more than 64 bits; give a smaller one")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and not value.isprintable():
        raise InvalidConfig(f"{where} is {value[:40]!a}; leave out what cannot be printed")
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise InvalidConfig(f"{where} is {value!r}; give a {hint.__name__}")
    return value
