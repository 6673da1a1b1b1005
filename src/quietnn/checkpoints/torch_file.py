"""A PyTorch file of tensors, held in memory. Nothing in it is ever run: it is read with `weights_only=True`."""

import copy
import json
import pickle
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quietnn.checkpoints.changes import Change, Look
from quietnn.checkpoints.disk import uncomputable
from quietnn.checkpoints.history import KEY, Step, history, with_step
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import InvalidWeights, MissingData
from quietnn.files import replacing_file
from quietnn.targets import noisy_weights, split_ties, with_weights
from quietnn.weights import COMPUTABLE

SUFFIXES = (".pt", ".pth")
_RECORD = "quietnn.json"
_MAX_RECORD_BYTES = 100_000_000
_MAX_REPEATED_BYTES = 100_000_000
"""A few bytes that a file lets stand for many, which is how small files fill a memory."""


@dataclass(frozen=True)
class TorchCheckpoint:
    """A state dict in a `.pt` file, alone or as the item `key` of a training checkpoint; see `StreamedCheckpoint`."""

    path: Path
    content: dict[Any, Any]
    key: str | None
    history: list[Any]

    @classmethod
    def open(cls, path: Path) -> "TorchCheckpoint":
        """Load a file without running anything in it, mapped into memory where its format allows."""
        content = _load(path)
        if not isinstance(content, dict):
            raise InvalidWeights(f"{path} holds a {type(content).__name__}, not a state dict; save model.state_dict()")
        checkpoint = cls(path, content, _find_state(path, content), _read_history(path))
        for name, tensor in checkpoint.state.items():
            _check_tensor(path, name, tensor)
        return checkpoint

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """The tensors of the state dict, by name."""
        state = self.content if self.key is None else self.content[self.key]
        return {name: value.resolve_neg() for name, value in state.items() if isinstance(value, Tensor)}

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        return {name: tuple(tensor.shape) for name, tensor in self.state.items()}

    @property
    def floating(self) -> Collection[str]:
        return {name for name, tensor in self.state.items() if tensor.is_floating_point()}

    @property
    def files(self) -> Sequence[Path]:
        return (self.path,)

    def distinct(self, names: Sequence[str]) -> tuple[str, ...]:
        """These names, one for each tensor: of tied ones, the first in the file, as in `named_parameters()`."""
        for name in names:
            tensor = self.state[name]
            if tensor.is_meta:
                raise InvalidWeights(f"{name} is on the meta device and has no values; save the model once it has some")
            if tensor.dtype not in COMPUTABLE or tensor.layout is not torch.strided:
                raise uncomputable(name, tensor.dtype if tensor.layout is torch.strided else tensor.layout)
        for name, other in split_ties(self.state, names):
            raise InvalidWeights(
                f"{name} and {other} are two names of one tensor, and only {name} counts as noisy; "
                f"leave it out with --exclude '{name}', or name all noisy tensors with --noisy"
            )
        distinct = tuple(noisy_weights(self.state, noisy=names))
        _check_apart(self.state, distinct)
        return distinct

    def noise_name(self, name: str) -> str:
        """The name itself: a state dict has all names, in the order of the layers."""
        return name

    def visit(self, names: Collection[str], look: Look, streaming: Streaming) -> None:
        """Show the named tensors to a function, one by one."""
        for name in names:
            look(name, self.state[name].detach().reshape(-1), 0)
            streaming.on_progress(self.state[name].nbytes)

    def read(self, name: str) -> Tensor:
        return self.state[name].detach().contiguous()

    @torch.no_grad()
    def write(
        self, out: Path, changes: Mapping[str, Change], step: Step, streaming: Streaming, *, overwrite: bool
    ) -> None:
        """Write a copy with some tensors changed; tied tensors stay tied."""
        state, changed = self.state, {}
        for name, change in changes.items():
            changed[name] = state[name].detach().clone(memory_format=torch.contiguous_format)
            change(changed[name].view(-1), 0)
            streaming.on_progress(changed[name].nbytes)
        new = copy.copy(self.content if self.key is None else self.content[self.key])
        new.update(with_weights(state, changed))
        content = new if self.key is None else {**self.content, self.key: new}
        with replacing_file(out, overwrite=overwrite, like=self.path) as partial:
            with partial.open("wb") as file:  # by path, torch would write the name into the archive
                torch.save(content, file)
            _write_history(partial, with_step({KEY: json.dumps(self.history)}, step)[KEY])


def _load(path: Path) -> Any:
    if not path.is_file():
        raise MissingData(f"there is no file {path}; give an existing one")
    try:
        if _is_stored(path):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return torch.load(path, map_location="cpu", weights_only=True)
    except InvalidWeights:
        raise
    except pickle.UnpicklingError as error:
        raise InvalidWeights(
            f"{path} holds more than tensors and plain values, and quietnn runs no code from files; "
            "save model.state_dict() alone, or use safetensors"
        ) from error
    except Exception as error:  # a broken file can fail anywhere in torch's reader
        raise InvalidWeights(
            f"{path} is not a whole PyTorch file ({type(error).__name__}: {str(error)[:200]}); save or fetch it again"
        ) from error


def _is_stored(path: Path) -> bool:
    """Whether a file can be mapped: an archive of torch 1.6 or later whose records are all stored as they are.

    A compressed record that is mapped would be taken for numbers. One that is read may grow, within bounds.
    """
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
    packed = [record for record in records if record.compress_type != zipfile.ZIP_STORED]
    grown = sum(record.file_size for record in packed)
    if grown > max(_MAX_REPEATED_BYTES, 10 * path.stat().st_size):
        raise InvalidWeights(f"{path} would grow to {grown:,} bytes when unpacked; save it again with torch.save")
    return not packed


def _find_state(path: Path, content: Mapping[Any, Any]) -> str | None:
    """Where the tensors are: at the top, or in exactly one of the items."""
    keys = [key for key, value in content.items() if isinstance(value, dict) and _holds_tensors(value)]
    if _holds_tensors(content):
        if not keys:
            return None
        first = next(name for name, value in content.items() if isinstance(value, Tensor))
        told = f"tensors by themselves ({first}) beside a state dict ({keys[0]})"
    elif len(keys) == 1 and isinstance(keys[0], str):
        return keys[0]
    else:
        told = f"several state dicts ({', '.join(map(str, keys[:4]))})" if keys else "no tensors by name"
    raise InvalidWeights(f"{path} holds {told}; save one state dict by itself")


def _holds_tensors(content: Mapping[Any, Any]) -> bool:
    tensors = [name for name, value in content.items() if isinstance(value, Tensor)]
    return bool(tensors) and all(isinstance(name, str) for name in tensors)


def _check_tensor(path: Path, name: str, tensor: Tensor) -> None:
    """Refuse a name that is no text, a tensor without a plain shape, and one larger than what the file holds of it."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidWeights(f"{path} holds a tensor called {name!a}, which is no text; rename it") from error
    if tensor.is_nested:
        raise InvalidWeights(f"{name} in {path} is a nested tensor; save its parts under names of their own")
    if tensor.is_meta or tensor.layout is not torch.strided:
        return
    stored = tensor.untyped_storage().nbytes()
    if tensor.nbytes > max(stored, _MAX_REPEATED_BYTES):
        raise InvalidWeights(
            f"{name} in {path} repeats {stored:,} bytes up to {tensor.nbytes:,}; save it with .contiguous()"
        )


def _check_apart(state: Mapping[str, Tensor], noisy: Collection[str]) -> None:
    """Refuse noisy tensors whose numbers are seen under another shape too, as those of a matrix and its transpose are.

    Each would get a noise of its own. Two names of one tensor are one name here.
    """
    chosen = set(noisy)
    views = [name for name in noisy_weights(state, noisy=tuple(state)) if _has_address(state[name])]
    spans = sorted((state[name].data_ptr(), state[name].data_ptr() + _reach(state[name]), name) for name in views)
    near: list[tuple[int, str]] = []
    for start, end, name in spans:
        near = [(until, other) for until, other in near if until > start]
        for _, other in near:
            if chosen & {name, other} and _overlap(state[name], state[other]):
                raise InvalidWeights(
                    f"{other} and {name} are views of the same numbers; save them with .clone(), or leave both out "
                    f"with --exclude '{other}' --exclude '{name}'"
                )
        near.append((end, name))


def _has_address(tensor: Tensor) -> bool:
    return bool(tensor.numel()) and not tensor.is_meta and tensor.layout is torch.strided


def _reach(tensor: Tensor) -> int:
    """Bytes from a tensor's first value to the end of its last."""
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.itemsize


def _overlap(first: Tensor, second: Tensor) -> bool:
    """Whether two views have a value in common; the left and the right half of a matrix have none."""
    storages = [tensor.untyped_storage() for tensor in (first, second)]
    if first.dtype != second.dtype or len({(one.data_ptr(), one.nbytes()) for one in storages}) > 1:
        return True  # two storages meet only in an archive whose records lie on top of each other
    seen = torch.zeros(first.untyped_storage().nbytes() // first.itemsize, dtype=torch.bool)
    seen.as_strided(first.shape, first.stride(), first.storage_offset()).fill_(True)
    return bool(seen.as_strided(second.shape, second.stride(), second.storage_offset()).any())


def _read_history(path: Path) -> list[Any]:
    """What a record beside the tensors tells; files from before torch 1.6 have none."""
    try:
        if not zipfile.is_zipfile(path):
            return []
        with zipfile.ZipFile(path) as archive:
            records = [name for name in archive.namelist() if name.endswith(f"/{_RECORD}")]
            if not records:
                return []
            with archive.open(records[0]) as file:
                content = file.read(_MAX_RECORD_BYTES + 1)
    except Exception as error:  # as above, but in Python's reader of archives
        raise InvalidWeights(f"the record {_RECORD} in {path} is damaged ({error}); save or fetch it again") from error
    if len(content) > _MAX_RECORD_BYTES:
        raise InvalidWeights(f"the record {_RECORD} in {path} has more than {_MAX_RECORD_BYTES:,} bytes; save it again")
    return history({KEY: content.decode(errors="replace")})


def _write_history(path: Path, text: str) -> None:
    """Add a record to the archive; torch reads the records it knows and leaves others alone."""
    with zipfile.ZipFile(path, "a") as archive:
        folder = archive.namelist()[0].partition("/")[0]
        archive.writestr(zipfile.ZipInfo(f"{folder}/{_RECORD}"), text)
