"""Named tasks are trained from their own data, and their weights land where `load_task` finds them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open

from quietnn.errors import InvalidConfig, MissingData
from quietnn.tasks.cifar10_task import weights_path
from quietnn.tasks.digits import RECIPE as DIGITS
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.registry import load_task
from quietnn.tasks.training import EncoderRecipe
from quietnn.tasks.training_named import default_recipe, default_target, grown, train_task
from quietnn.tasks.weights_file import write_weights

RECIPE = EncoderRecipe(num_epochs=3, batch_size=4, peak_lr=5e-3)


def test_weights_go_where_they_are_looked_for(tmp_path: Path) -> None:
    recipe = replace(DIGITS, num_epochs=1)
    path = train_task("digits", data_dir=tmp_path, recipe=recipe)
    assert path == default_target("digits", tmp_path)
    with safe_open(path, framework="pt") as file:
        told = file.metadata()
    assert told["task"] == "digits"
    assert json.loads(told["recipe"])["num_epochs"] == 1
    assert load_task("digits", weights=path).load_model()
    assert not list((tmp_path / "runs" / "train-digits").iterdir()), "nothing is left to resume"
    with pytest.raises(InvalidConfig, match="there already; give another --out"):
        train_task("digits", data_dir=tmp_path, recipe=recipe)


def test_a_grown_network_begins_with_the_normalisation_of_the_shallow_one(tmp_path: Path) -> None:
    metadata = {"input_normalisation": "0.5,0.5,0.5/0.25,0.25,0.25"}
    write_weights(weights_path("resnet18", tmp_path), IMAGE_MODELS["resnet18"]().state_dict(), metadata=metadata)
    _, normalisation, origin = grown("resnet34", "resnet18", tmp_path, seed=0)
    assert normalisation.mean == (0.5, 0.5, 0.5)
    assert origin["grown_from"] == "resnet18"
    assert "layer3.4" in origin["added_blocks"].split(",")


def test_only_the_papers_resnets_grow(tmp_path: Path) -> None:
    for architecture, source, words in (
        ("resnet34", "resnet19", "no network 'resnet19'"),
        ("resnet34", "resnet20", "resnet34 cannot grow out of resnet20"),
    ):
        with pytest.raises(InvalidConfig, match=words):
            grown(architecture, source, tmp_path, seed=0)
    with pytest.raises(InvalidConfig, match="leave --grow-from out"):
        train_task("digits", data_dir=tmp_path, recipe=default_recipe("digits"), grow_from="resnet18")


def test_fine_tuning_makes_a_task_that_knows_its_classes(sst2_dir: Path) -> None:
    folder = train_task("sst2/tiny", data_dir=sst2_dir, recipe=replace(RECIPE, num_epochs=20))
    assert folder == sst2_dir / "sst2-tiny"
    task = load_task("sst2/tiny", data_dir=sst2_dir)
    model = task.load_model()
    assert not model.training
    score = task.evaluate(model, task.test_examples(None))
    assert (score.accuracy, score.num_examples) == (1.0, 14)
    assert len(task.test_examples(5)) == 5
    assert len(task.tuning_examples(4, 0)) == 4
    with pytest.raises(InvalidConfig, match="asked for 11 examples, there are 10"):
        task.tuning_examples(11, 0)


def test_an_unknown_encoder_lists_the_places(sst2_dir: Path) -> None:
    with pytest.raises(MissingData, match=r"sst2-huge/config\.json(.|\n)*huge/config\.json"):
        load_task("sst2/huge", data_dir=sst2_dir)
    with pytest.raises(MissingData, match="a pretrained encoder called 'huge'"):
        train_task("sst2/huge", data_dir=sst2_dir, recipe=RECIPE)
