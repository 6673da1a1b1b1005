"""Rows of one's own: registered, checked, found by name, by sweeps, by the command line and by auto."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from typer.testing import CliRunner

import quietnn
from quietnn import REPAIRS, Evidence, Method, Observation, Repair, Repaired, register, repair, transmit
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.methods import METHODS, style_of
from quietnn.repairs.base import always


def recall(observation: Observation[Any, Any], evidence: Evidence, seed: int, settings: object) -> Repaired:
    """A repair of one's own that is better than it has any right to be: it knows the clean network."""
    network = copy.deepcopy(observation.model)
    network.load_state_dict(quietnn.load_task("digits").load_model().state_dict())
    return Repaired(network, "recalled", 1.0, {"seed": seed})


@pytest.fixture
def toy() -> Iterator[Repair]:
    row = Repair(
        Method("recalled", "Recalled weights", "#123456", needs="inputs", cost=1, reference="this file"),
        recall,
        by_auto=always,
    )
    register(row)
    try:
        yield row
    finally:
        REPAIRS.remove("recalled")


def test_a_repair_of_ones_own_is_found_by_name(toy: Repair) -> None:
    network = quietnn.load_task("digits").load_model()
    inputs = quietnn.load_task("digits").tuning_examples(20, 0).inputs
    made = repair(network, inputs, method="recalled", noise_variance=0.01, seed=4)
    assert (made.name, made.passes, made.details["seed"]) == ("recalled", 1.0, 4)
    assert style_of("recalled") is toy.method
    with pytest.raises(InvalidConfig, match=r"call repair\(model, inputs, method='recalled', ...\)"):
        repair(network, method="recalled", noise_variance=0.01)
    with pytest.raises(InvalidConfig, match="did you mean 'recalled'"):
        repair(network, method="recall", noise_variance=0.01)


def test_a_repair_of_ones_own_is_in_sweeps(toy: Repair) -> None:
    sweep = NoisyInference(
        name="toy", task="digits", wnr_db=(0.0,), methods=("ml", "recalled"), num_draws=1, num_test_examples=100
    )
    found = {record["method"]: record["accuracy"] for record in sweep.run()}
    assert found["recalled"] == found["clean"] > found["ml"]


def test_a_repair_of_ones_own_is_in_the_sweeps_of_the_command_line(toy: Repair, tmp_path: Path) -> None:
    config = tmp_path / "toy.toml"
    config.write_text(
        'name = "toy"\ntask = "digits"\nwnr_db = [0.0]\nmethods = ["recalled"]\nnum_draws = 1\nnum_test_examples = 50\n'
    )
    found = CliRunner().invoke(app, ["sweep", str(config), "--out", str(tmp_path / "run"), "--engine", "inline"])
    assert found.exit_code == 0, found.output
    assert '"method": "recalled"' in "".join(path.read_text() for path in (tmp_path / "run").rglob("*.jsonl"))


def test_auto_tries_a_repair_of_ones_own(toy: Repair) -> None:
    task = quietnn.load_task("digits")
    observation = transmit(task.load_model(), wnr_db=0.0, seed=0)
    chosen = repair(observation, task.evidence(task.tuning_examples(40, 0)), max_passes=10)
    assert chosen.name == "recalled"
    assert "recalled" in {one.name for one in chosen.details["tried"]}


def test_a_row_that_was_taken_out_is_gone(toy: Repair) -> None:
    REPAIRS.remove("recalled")
    assert "recalled" not in REPAIRS
    assert "recalled" not in METHODS
    with pytest.raises(InvalidConfig, match="method is 'recalled'"):
        NoisyInference(name="toy", task="digits", wnr_db=(0.0,), methods=("recalled",))


def test_names_are_taken_once_and_rows_are_checked(toy: Repair) -> None:
    register(toy)  # the same row again, as a module that is imported twice does
    with pytest.raises(InvalidConfig, match="there is a repair called 'ml' already; choose another name"):
        register(Repair(Method("ml", "Mine", "#000000"), recall))
    with pytest.raises(InvalidConfig, match="needs is 'input'; did you mean 'inputs'"):
        register(Repair(Method("mine", "Mine", "#000000", needs="input"), recall))
    with pytest.raises(InvalidConfig, match=r"not a function: register\(Repair\(method, run\)\)"):
        register(recall)
    assert "mine" not in METHODS


def test_a_row_of_ones_own_comes_last_and_must_return_a_repaired() -> None:
    row = register(Repair(Method("mine_last", "Mine", "#000000", needs="nothing"), lambda *_: None))
    try:
        assert list(REPAIRS)[-1] == "mine_last"
        with pytest.raises(QuietnnError, match=r"what mine_last returned is a NoneType; return Repaired"):
            quietnn.repair(nn.Linear(2, 2), noise_variance=0.1, method="mine_last")
        with pytest.raises(QuietnnError, match="there is a repair called 'posterior' already"):
            register(Repair(Method("posterior", "P", "#000000"), row.run))
    finally:
        REPAIRS.remove("mine_last")
