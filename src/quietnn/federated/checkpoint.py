"""Where a federation stands after a round: two generations, each whole and with a checksum.

The newest state lies at its path, the one before beside it as `NAME.previous.safetensors`. A file that is damaged is
put aside as `NAME.damaged.safetensors`, the older generation takes over, and what is lost is said. Rounds follow from
the seed, so those that are run again come out the same.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from quietnn import records
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.federated.rounds import ServerState
from quietnn.files import sync, write_whole
from quietnn.records import Record

_STATE, _MEMORY = "state/", "memory/"
_NO_CHECKSUM = "checksum of everything else in this file".ljust(64, ".")
"""What stands in the place of the checksum while it is computed; as long as 32 bytes in hexadecimal digits."""

_WITHOUT_CHECKSUM = {"num_rounds_done", "settings", "rounds"}
"""The entries of files of older versions, which have no checksum."""

_UNREADABLE = (OSError, SafetensorError, ValueError, LookupError, RuntimeError, TypeError, AttributeError)
"""What reading raises where a disk fails or bytes are not those that were written."""


class Journal:
    """What a server keeps of its finished rounds, so that it can be killed at any moment and go on.

    Attributes:
        rounds: the record of every finished round.
        fell_back: what was found damaged and from where the run goes on, until a record says so; None if nothing was.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any], *, lines: Path | None = None) -> None:
        """Keep the state after the last round at `path`, and the records as JSON lines too; without one, in memory."""
        self._path, self._settings, self._lines = path, settings, lines
        self.rounds: list[Record] = []
        self.fell_back: str | None = None

    def load(self) -> ServerState | None:
        """The server after its last finished round that is sound; None if there is none."""
        if self._path is None:
            return None
        server: ServerState | None = None
        damaged: list[str] = []
        for place in (self._path, _beside(self._path, "previous")):
            if server is None and place.is_file():
                try:
                    server, self.rounds = _read(place, self._settings)
                except _Damaged as error:
                    place.replace(_beside(self._path, "damaged"))
                    damaged.append(f"{place.name} is damaged ({error})")
        if damaged and server is None:
            self.fell_back = f"{' and '.join(damaged)}; no older state is sound, the run starts over at round 1"
        elif damaged and server is not None:
            done = server.num_rounds_done
            self.fell_back = f"{damaged[0]}; the run goes on after round {done}, the last sound one"
        if server is not None:
            self._write(self.rounds)  # the checkpoint decides; the lines may be damaged too, or ahead of it
        return server

    def finish(self, server: ServerState, record: Record) -> None:
        """A round is over. The checkpoint holds its record too, so the two never disagree after a crash."""
        if self.fell_back is not None:
            record, self.fell_back = record | {"fell_back": self.fell_back}, None
        self.rounds.append(record)
        if self._path is not None:
            self._save(self._path, server)
        self._write(self.rounds)

    def _save(self, path: Path, server: ServerState) -> None:
        """Write weights, memory, records and settings; a crash leaves two whole generations, whichever they are."""
        tensors = {_STATE + name: tensor.contiguous() for name, tensor in server.state.items()}
        tensors |= {_MEMORY + name: tensor.contiguous() for name, tensor in server.memory.items()}
        metadata = {
            "num_rounds_done": str(server.num_rounds_done),
            "settings": json.dumps(self._settings, sort_keys=True),
            "rounds": "\n".join(records.encode(record) for record in self.rounds),
            "checksum": _NO_CHECKSUM,
        }
        content = save(tensors, metadata=metadata)
        content = content.replace(_NO_CHECKSUM.encode(), _checksum(content).encode(), 1)
        older = _second_name(path) if path.is_file() else None
        write_whole(path, content)
        if older is not None:
            older.replace(_beside(path, "previous"))

    def stop(self, record: Record) -> None:
        """A round that ends the run. It is not a finished one: a new start would try it again."""
        self._write([*self.rounds, record])

    def _write(self, rounds: Sequence[Record]) -> None:
        if self._lines is not None:
            write_whole(self._lines, "".join(records.encode(record) + "\n" for record in rounds).encode())


class _Damaged(Exception):
    """A file that is not what was written; why."""


def _second_name(path: Path) -> Path:
    """The newest state under a hidden name as well, until it is the older one.

    The older generation is replaced last, so that at any moment there are two files that share nothing.
    """
    hidden = path.with_name(f".{path.name}.older")
    hidden.unlink(missing_ok=True)
    try:
        hidden.hardlink_to(path)
    except OSError:  # not every disk can
        shutil.copyfile(path, hidden)
        sync(hidden)
    return hidden


def _read(path: Path, settings: Mapping[str, Any]) -> tuple[ServerState, list[Record]]:
    """One generation, if every byte of it is as it was written and its weights are finite."""
    try:
        content = path.read_bytes()
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        if set(metadata) != _WITHOUT_CHECKSUM:
            checksum = metadata["checksum"]
            if _checksum(content.replace(checksum.encode(), _NO_CHECKSUM.encode(), 1)) != checksum:
                raise _Damaged("its checksum does not fit")
        stored = dict(json.loads(metadata["settings"]))
        tensors = load(content)
        rounds = [records.decode(line) for line in metadata["rounds"].splitlines()]
        done = int(metadata["num_rounds_done"])
    except PermissionError as error:
        raise QuietnnError(f"{path} may not be read; give yourself the right, or choose another folder") from error
    except _UNREADABLE as error:
        raise _Damaged(f"it cannot be read: {type(error).__name__}") from error
    wanted = json.loads(json.dumps(settings))
    changed = sorted(key for key in stored.keys() | wanted.keys() if stored.get(key) != wanted.get(key))
    if changed:
        raise InvalidConfig(
            f"{path} is of a run with other settings ({changed[0]} was {stored.get(changed[0])}, now "
            f"{wanted.get(changed[0])}); remove it to start over, or choose another folder"
        )
    state = _under(_STATE, tensors)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise _Damaged(f"{name} is not finite")
    return ServerState(done, state, _under(_MEMORY, tensors)), rounds


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def _beside(path: Path, generation: str) -> Path:
    return path.with_name(f"{path.stem}.{generation}{path.suffix}")


def _under(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
