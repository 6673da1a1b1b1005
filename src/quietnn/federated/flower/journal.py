"""What a server keeps of its finished rounds, so that it can be killed at any moment and go on."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quietnn import records
from quietnn.federated.checkpoint import load_server, save_server
from quietnn.federated.rounds import ServerState
from quietnn.files import replacing_file
from quietnn.records import Record

LOGGER = logging.getLogger("flwr")

CHECKPOINT, ROUNDS = "server.safetensors", "rounds.jsonl"


class Journal:
    """The checkpoint after the last finished round, and the record of every round as a JSON line."""

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        """Keep a run in this folder; without one, only in memory."""
        self._folder = folder
        self._settings = settings
        self.rounds: list[Record] = []
        self._fell_back: str | None = None

    def load(self) -> ServerState | None:
        """The server after its last finished round that is sound; None if there is none.

        What was damaged is logged, and said in the record of the next round.

        Raises:
            InvalidConfig: if the folder holds a run with other settings.
        """
        if self._folder is None:
            return None
        stored = load_server(self._folder / CHECKPOINT, self._settings)
        self.rounds, self._fell_back = stored.rounds, stored.fell_back
        if self._fell_back is not None:
            LOGGER.warning("%s", self._fell_back)
        if stored.server is not None:
            self._write(self.rounds)  # the checkpoint decides; the lines may be damaged too, or ahead of it
        return stored.server

    def finish(self, server: ServerState, record: Record) -> None:
        """A round is over. The checkpoint holds its record too, so the two never disagree after a crash."""
        if self._fell_back is not None:
            record, self._fell_back = record | {"fell_back": self._fell_back}, None
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
