"""What a server keeps of its finished rounds, so that it can be killed at any moment and go on."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quietnn import records
from quietnn.checkpoints.atomic import replacing_file
from quietnn.federated.checkpoint import load_server, save_server
from quietnn.federated.rounds import ServerState
from quietnn.records import Record

CHECKPOINT, ROUNDS = "server.safetensors", "rounds.jsonl"


class Journal:
    """The checkpoint after the last finished round, and the record of every round as a JSON line."""

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        """Keep a run in this folder; without one, only in memory."""
        self._folder = folder
        self._settings = settings
        self.rounds: list[Record] = []

    def load(self) -> ServerState | None:
        """The server after its last finished round; None if there is none.

        Raises:
            InvalidConfig: if the folder holds a run with other settings.
        """
        found = None if self._folder is None else load_server(self._folder / CHECKPOINT, self._settings)
        if found is None:
            return None
        server, self.rounds = found
        return server

    def finish(self, server: ServerState, record: Record) -> None:
        """A round is over. The checkpoint holds its record too, so the two never disagree after a crash."""
        self.rounds.append(record)
        if self._folder is not None:
            save_server(self._folder / CHECKPOINT, server, self.rounds, self._settings)
        self._write(self.rounds)

    def stop(self, record: Record) -> None:
        """A round that ends the run. It is not a finished one: a new start would try it again."""
        self._write([*self.rounds, record])

    def _write(self, rounds: list[Record]) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(records.encode(record) + "\n" for record in rounds)
        with replacing_file(self._folder / ROUNDS) as partial, partial.open("w", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
