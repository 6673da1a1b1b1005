"""Every row of the table runs where it says that it applies, and a new row is everywhere at once."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import quietnn
from quietnn import REPAIRS, Evidence, Method, Observation, Repair, Repaired, register, repair, transmit
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.methods import METHODS, NEEDS, style_of
from quietnn.observation import observe
from quietnn.repairs.base import always

LABELS = torch.arange(40) % 3
IMAGES = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0)) + LABELS[:, None, None, None]


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    ).eval()


def normalising() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize("name", list(REPAIRS))
def test_every_row_runs_on_a_network_that_it_applies_to(name: str) -> None:
    row = REPAIRS[name]
    network = next(one for one in (convolutional(), normalising()) if row.applies(observe(one)))
    observation = transmit(network, wnr_db=3.0, seed=0)
    before = copy.deepcopy(observation.received.state_dict())
    made = repair(observation, IMAGES, LABELS, method=name)
    assert made.name == name or name.startswith("auto")
    assert made.passes <= 1.5 * row.cost + 1, "about what the table says"
    with torch.no_grad():
        assert torch.isfinite(made.model(IMAGES)).all()
    assert all(torch.equal(tensor, before[key]) for key, tensor in observation.received.state_dict().items())


@pytest.mark.parametrize("name", list(REPAIRS))
def test_a_row_has_a_label_a_reference_and_what_it_needs(name: str) -> None:
    row = REPAIRS[name]
    assert (row.name, row.method) == (name, METHODS[name])
    assert row.needs in NEEDS
    assert row.label
    assert row.reference
    kinds = (convolutional(), normalising())
    assert any(row.applies(observe(one)) for one in kinds)
    assert not any(row.unjudged(observe(one)) for one in kinds) or row.needs != "labels", (
        "nothing is judged without labels"
    )


@pytest.mark.parametrize("name", [name for name in REPAIRS if REPAIRS[name].needs == "nothing"])
def test_what_needs_nothing_takes_a_state_dict(name: str) -> None:
    state = convolutional().state_dict()
    assert set(repair(state, method=name, noise_variance=0.01).model) == set(state)


def test_the_same_seed_gives_the_same_network_and_rows_share_their_searches() -> None:
    observation, evidence = transmit(convolutional(), wnr_db=3.0, seed=0), Evidence(IMAGES, LABELS)
    one, other = (REPAIRS["mmse_pb"](observation, evidence, seed=seed) for seed in (1, 1))
    assert one.details["search"] is other.details["search"]
    again = REPAIRS["mmse_pb"](Observation(observation.received, observation.noise_variance), evidence, seed=1)
    assert again.details["temperatures"] == one.details["temperatures"]


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
