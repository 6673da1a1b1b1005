"""Federations that are killed, and whose state is damaged while they are down."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from quietnn import records
from quietnn.experiments.config import load_config
from quietnn.experiments.noisy_training import NoisyTraining
from quietnn.experiments.sweep import sweep

CONFIG = """
name = "mini"
task = "digits/mlp"
wnr_db = [0]
methods = ["carried"]
num_draws = 1
num_rounds = 60
num_epochs = 1
batch_size = 25
num_progress_examples = 100
test_every = 20
"""


class Victim:
    """A federation in a process of its own that is killed once it is under way, and what it said."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.run = folder / "run"
        self.command = [sys.executable, "-m", "quietnn.cli.main", "federate", str(folder / "mini.toml")]
        self.command += ["--out", str(self.run)]
        self.errors = folder / "errors.log"
        self.expected: list[str] = []
        self.num_kills = 0

    def states(self) -> list[Path]:
        """The newest state of every federation that has no record yet."""
        done = {f"{record['method']}_{record['wnr_db']:g}dB" for record in records.read(self.run / "records.jsonl")}
        found = sorted((self.run / "checkpoints").glob("*draw0*.safetensors"))
        names = {
            path.name.split("_draw0")[0]: path.with_name(path.name.split(".")[0] + ".safetensors") for path in found
        }
        return [path for name, path in names.items() if name not in done]

    def start_and_kill(self) -> bool:
        """Whether it was still running."""
        before = {path: path.stat().st_mtime_ns for path in self.states() if path.exists()}
        with self.errors.open("ab") as errors:
            process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=errors)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            now = {path: path.stat().st_mtime_ns for path in self.states() if path.exists()}
            if any(before.get(path) != moment for path, moment in now.items()):
                break
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0.0, 0.3))
        running = process.poll() is None
        process.kill()
        process.wait()
        self.num_kills += running
        return running

    def damage(self) -> None:
        """Break the newest state, the older one, both or none; remember what the next start has to say."""
        paths = self.states()
        if not paths or not paths[-1].exists():
            return
        newest = paths[-1]
        older = newest.with_name(f"{newest.stem}.previous.safetensors")
        which = self.chance.choices([(), (newest,), (older,), (newest, older)], [4, 4, 1, 1])[0]
        for path in which:
            if path.exists():
                path.write_bytes(self._broken(path.read_bytes()))
        if newest in which:
            sound = older not in which and older.exists()
            self.expected.append(
                f"goes on after round {rounds_done(older)}" if sound else "the run starts over at round 1"
            )

    def _broken(self, content: bytes) -> bytes:
        place = self.chance.randrange(len(content))
        kind = self.chance.randrange(4)
        if kind == 0:
            return content[:place]
        if kind == 1:
            return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        if kind == 2:
            return content[:place] + self.chance.randbytes(min(512, len(content) - place)) + content[place + 512 :]
        return b""


def rounds_done(path: Path) -> int:
    with safe_open(path, framework="pt") as file:
        return int(file.metadata()["num_rounds_done"])


def final_states(run: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.name: load_file(path) for path in sorted((run / "checkpoints").iterdir()) if path.name.count(".") == 1}


@pytest.mark.slow
def test_killed_and_damaged_at_random_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Ten kills; `QUIETNN_KILLS=50` for more of them, by hand."""
    num_kills = int(os.environ.get("QUIETNN_KILLS", "10"))
    config = CONFIG.replace("num_rounds = 60", f"num_rounds = {6 * num_kills}")
    (tmp_path / "mini.toml").write_text(config)
    undisturbed = sweep(load_config(NoisyTraining, tmp_path / "mini.toml"), tmp_path / "undisturbed", engine="inline")
    victim = Victim(tmp_path, seed=num_kills)
    for _ in range(2 * num_kills):
        if victim.num_kills == num_kills or not victim.start_and_kill():
            break
        victim.damage()
    with victim.errors.open("ab") as errors:
        subprocess.run(victim.command, check=True, stdout=subprocess.DEVNULL, stderr=errors)
    said = [line for line in victim.errors.read_text().splitlines() if "damaged" in line]
    print(f"{victim.num_kills} kills, {len(victim.expected)} times the newest state damaged:", *said, sep="\n")
    assert victim.num_kills >= 0.8 * num_kills
    assert victim.expected
    for line, expected in zip(said, victim.expected, strict=True):
        assert expected in line
    wanted, found = final_states(tmp_path / "undisturbed"), final_states(victim.run)
    assert len(wanted) == 2
    assert wanted.keys() == found.keys()
    for name, tensors in wanted.items():
        assert all(torch.equal(found[name][place], tensor) for place, tensor in tensors.items()), name
    for one, other in zip(undisturbed, records.read(victim.run / "records.jsonl"), strict=True):
        loose = {"seconds", "fell_back"}
        assert {key: value for key, value in one.items() if key not in loose} == {
            key: value for key, value in other.items() if key not in loose
        }
        assert set(map(type, other.get("fell_back", []))) <= {str}
