"""Where a federation stands after a round, in one file: complete or not there at all."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save

from quietnn import records
from quietnn.checkpoints.atomic import replacing_file
from quietnn.errors import InvalidConfig
from quietnn.federated.rounds import ServerState
from quietnn.records import Record

_STATE, _MEMORY = "state/", "memory/"


def save_server(path: Path, server: ServerState, rounds: Sequence[Record], settings: Mapping[str, Any]) -> None:
    """Write weights, memory, round records and settings; a crash leaves the older file or the new one, whole.

    There are no generator states to save: everything random follows from the seed and the round's number.
    """
    tensors = {_STATE + name: tensor.contiguous() for name, tensor in server.state.items()}
    tensors |= {_MEMORY + name: tensor.contiguous() for name, tensor in server.memory.items()}
    metadata = {
        "num_rounds_done": str(server.num_rounds_done),
        "settings": json.dumps(settings, sort_keys=True),
        "rounds": "\n".join(records.encode(record) for record in rounds),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_file(path) as partial, partial.open("wb") as file:
        file.write(save(tensors, metadata=metadata))
        file.flush()
        os.fsync(file.fileno())


def load_server(path: Path, settings: Mapping[str, Any]) -> tuple[ServerState, list[Record]] | None:
    """The server and the records of its rounds, or None if no round was finished.

    Raises:
        InvalidConfig: if the checkpoint is of a run with other settings.
    """
    if not path.is_file():
        return None
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    stored, wanted = json.loads(metadata["settings"]), json.loads(json.dumps(settings))
    changed = sorted(key for key in stored.keys() | wanted.keys() if stored.get(key) != wanted.get(key))
    if changed:
        raise InvalidConfig(
            f"{path} is of a run with other settings ({changed[0]} was {stored.get(changed[0])}, now "
            f"{wanted.get(changed[0])}); remove it to start over, or choose another folder"
        )
    server = ServerState(
        num_rounds_done=int(metadata["num_rounds_done"]),
        state=_under(_STATE, tensors),
        memory=_under(_MEMORY, tensors),
    )
    return server, [records.decode(line) for line in metadata["rounds"].splitlines()]


def _under(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
