"""The state of a server: checked to the last byte, and kept twice."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from quietnn import records
from quietnn.errors import InvalidConfig
from quietnn.federated.checkpoint import Journal
from quietnn.federated.rounds import ServerState

SETTINGS = {"seed": 1, "method": "ml"}


def server(num_rounds_done: int) -> ServerState:
    state = {"a.weight": torch.arange(12.0).view(3, 4) + num_rounds_done, "bn.num_batches_tracked": torch.tensor(5)}
    return ServerState(num_rounds_done, state, {"estimate/a.weight": torch.ones(3, 4)})


def rounds(num: int) -> list[dict[str, object]]:
    return [{"round": number + 1, "loss": 0.5, "note": "naïve"} for number in range(num)]


class Stored(NamedTuple):
    server: ServerState | None
    rounds: list[dict[str, object]]
    fell_back: str | None


def load_server(path: Path, settings: dict[str, object]) -> Stored:
    journal = Journal(path, settings)
    server = journal.load()
    return Stored(server, journal.rounds, journal.fell_back)


def save_server(path: Path, server: ServerState, rounds: list[dict[str, object]]) -> None:
    journal = Journal(path, SETTINGS)
    journal.rounds = rounds[:-1]
    journal.finish(server, rounds[-1])


def save(path: Path, num: int) -> None:
    save_server(path, server(num), rounds(num))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "server.safetensors"
    for number in (1, 2, 3):
        save(path, number)
    return path


def test_what_is_written_is_read(path: Path) -> None:
    stored = load_server(path, SETTINGS)
    assert stored.fell_back is None
    assert stored.rounds == rounds(3)
    assert stored.server is not None
    assert stored.server.num_rounds_done == 3
    assert torch.equal(stored.server.state["a.weight"], server(3).state["a.weight"])
    assert torch.equal(stored.server.memory["estimate/a.weight"], torch.ones(3, 4))
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "server.previous.safetensors",
        "server.safetensors",
    ]
    assert load_file(path)["state/a.weight"][0, 0] == 3.0  # it is an ordinary safetensors file


def test_lines_are_written_anew_from_the_checkpoint_and_say_once_what_was_damaged(path: Path) -> None:
    lines = path.with_name("rounds.jsonl")
    lines.write_text("nonsense")
    path.write_bytes(b"")
    journal = Journal(path, SETTINGS, lines=lines)
    found = journal.load()
    assert found is not None
    assert records.read(lines) == rounds(2)
    for number in (3, 4):
        journal.finish(server(number), {"round": number})
    journal.stop({"round": 5, "status": "diverged"})
    assert ["fell_back" in record for record in records.read(lines)] == [False, False, True, False, False]
    assert [record["round"] for record in load_server(path, SETTINGS).rounds] == [1, 2, 3, 4]


def test_without_a_folder_a_journal_is_in_memory(tmp_path: Path) -> None:
    journal = Journal(None, SETTINGS)
    assert journal.load() is None
    journal.finish(server(1), {"round": 1})
    journal.stop({"round": 2})
    assert journal.rounds == [{"round": 1}]


def test_no_file_is_no_round(tmp_path: Path) -> None:
    stored = load_server(tmp_path / "server.safetensors", SETTINGS)
    assert (stored.server, stored.rounds, stored.fell_back) == (None, [], None)


def flip(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "one bit": flip,
    "truncated": lambda content, chance: content[: chance.randrange(len(content))],
    "empty": lambda content, chance: b"",
    "zeros": lambda content, chance: bytes(len(content)),
    "a block of zeros": lambda content, chance: content[:40] + bytes(64) + content[104:],
    "random": lambda content, chance: chance.randbytes(len(content)),
    "longer": lambda content, chance: content + chance.randbytes(9),
    "header without end": lambda content, chance: b"\xff" * 8 + content[8:],
    "header of nothing": lambda content, chance: bytes(8) + content[8:],
    "header that is no object": lambda content, chance: (2).to_bytes(8, "little") + b"[]",
    "deep header": lambda content, chance: (10**6).to_bytes(8, "little") + b"[" * 10**6,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_falls_back_to_the_older_state_and_says_so(kind: str, path: Path) -> None:
    good = path.read_bytes()
    for seed in range(60 if kind in ("one bit", "truncated") else 2):
        path.write_bytes(DAMAGE[kind](good, random.Random(seed)))
        stored = load_server(path, SETTINGS)
        assert stored.server is not None
        assert stored.server.num_rounds_done == 2, seed
        assert stored.rounds == rounds(2)
        assert stored.fell_back is not None
        assert "server.safetensors is damaged (" in stored.fell_back
        assert stored.fell_back.endswith("the run goes on after round 2, the last sound one")
        assert not path.exists()


def test_a_state_that_is_not_finite_is_a_damaged_one(path: Path) -> None:
    bad = server(4)
    bad.state["a.weight"][0, 0] = torch.nan
    save_server(path, bad, rounds(4))
    stored = load_server(path, SETTINGS)
    assert stored.server is not None
    assert stored.server.num_rounds_done == 3
    assert "a.weight is not finite" in str(stored.fell_back)


def test_a_damaged_state_never_replaces_a_sound_one(path: Path) -> None:
    path.write_bytes(b"nothing")
    load_server(path, SETTINGS)
    save(path, 3)
    path.write_bytes(b"nothing again")
    stored = load_server(path, SETTINGS)
    assert stored.server is not None
    assert stored.server.num_rounds_done == 2
    assert (path.parent / "server.damaged.safetensors").read_bytes() == b"nothing again"


def test_two_damaged_states_are_a_new_start_that_is_said(path: Path) -> None:
    for file in path.parent.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    stored = load_server(path, SETTINGS)
    assert (stored.server, stored.rounds) == (None, [])
    assert re.search(r"server\.safetensors is damaged .* and server\.previous\.safetensors", str(stored.fell_back))
    assert str(stored.fell_back).endswith("the run starts over at round 1")


def test_a_disk_without_hard_links_keeps_two_states_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    save(path, 4)
    assert len(list(path.parent.iterdir())) == 2
    path.write_bytes(b"")
    stored = load_server(path, SETTINGS)
    assert stored.server is not None
    assert stored.server.num_rounds_done == 3


@pytest.mark.parametrize("moment", ["before the new state is in place", "after it"])
def test_a_crash_while_saving_leaves_two_files_that_share_nothing(
    moment: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage to the one must not be damage to the other: a hard link alone is no second generation."""
    replace = Path.replace

    class Crash(BaseException):
        pass

    def crash(self: Path, target: Path) -> Path:
        if (target == path) == (moment == "before the new state is in place"):
            raise Crash
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(Crash):
        save(path, 4)
    monkeypatch.undo()
    previous = path.with_name("server.previous.safetensors")
    assert not previous.samefile(path)
    with path.open("r+b") as file:
        file.write(b"damage")
    stored = load_server(path, SETTINGS)
    assert stored.server is not None
    assert stored.server.num_rounds_done == 2
    for number in (3, 4):
        save(path, number)
    assert {file.name for file in path.parent.iterdir()} == {
        "server.safetensors",
        "server.previous.safetensors",
        "server.damaged.safetensors",
    }


def test_where_the_newest_state_is_gone_the_older_one_is_taken(path: Path) -> None:
    path.unlink()
    stored = load_server(path, SETTINGS)
    assert stored.server is not None
    assert stored.server.num_rounds_done == 2


def test_other_settings_are_refused(path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"seed was 1, now 2"):
        load_server(path, SETTINGS | {"seed": 2})
    assert path.exists()


def test_a_state_of_an_older_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.safetensors"
    metadata = {"num_rounds_done": "1", "settings": '{"seed": 1, "method": "ml"}', "rounds": '{"round": 1}'}
    save_file({"state/a": torch.ones(2)}, path, metadata=metadata)
    stored = load_server(path, SETTINGS)
    assert stored.server is not None
    assert stored.server.num_rounds_done == 1
