"""Named tasks load, and say what is wrong when they cannot."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from quietnn.errors import InvalidConfig, InvalidWeights, MissingData
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.registry import TASK_NAMES, load_task, split_name
from quietnn.tasks.weights_file import write_weights


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("cifar10/resnet81", "cifar10/resnet18"), ("digit", "digits"), ("cifar/shufflenet", "cifar10/shufflenetv2")],
)
def test_a_typo_gets_a_suggestion(typo: str, meant: str) -> None:
    with pytest.raises(InvalidConfig, match=f"did you mean '{meant}'"):
        split_name(typo)


def test_an_encoder_needs_a_name() -> None:
    with pytest.raises(InvalidConfig, match="sst2/<encoder>"):
        split_name("sst2/")
    assert split_name("sst2/bert-base") == ("sst2", "bert-base")
    assert all(split_name(name) for name in TASK_NAMES)


def test_missing_weights_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"weights/resnet18-cifar10\.safetensors\n.*quietnn train cifar10/resnet18"):
        load_task("cifar10/resnet18", data_dir=tmp_path)


def test_weights_of_another_network_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file(IMAGE_MODELS["shufflenetv2-x0_5"]().state_dict(), path)
    with pytest.raises(InvalidWeights, match=r"missing: conv1\.weight(.|\n)*unexpected: conv1\.0\.weight"):
        load_task("cifar10/resnet20", data_dir=tmp_path, weights=path)


def test_weights_of_another_width_are_refused_by_shape(tmp_path: Path) -> None:
    weights = IMAGE_MODELS["resnet20"]().state_dict()
    path = tmp_path / "wide.safetensors"
    save_file({**weights, "fc.weight": torch.zeros(100, 64)}, path)
    with pytest.raises(InvalidWeights, match=r"fc\.weight \(100, 64\)"):
        load_task("cifar10/resnet20", data_dir=tmp_path, weights=path)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    save_file(IMAGE_MODELS["resnet20"]().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidWeights, match="whole safetensors file"):
        load_task("cifar10/resnet20", data_dir=tmp_path, weights=path)


def test_every_model_it_loads_is_a_fresh_copy(tmp_path: Path) -> None:
    source = IMAGE_MODELS["resnet20"]().state_dict()
    write_weights(tmp_path / "weights/resnet20-cifar10.safetensors", source, metadata={})
    task = load_task("cifar10/resnet20", data_dir=tmp_path)
    first = task.load_model()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.zero_()
    second = task.load_model()
    assert not second.training
    assert all(torch.equal(source[name], tensor) for name, tensor in second.state_dict().items())
    assert list((tmp_path / "weights").iterdir()) == [tmp_path / "weights/resnet20-cifar10.safetensors"]


def test_absent_batch_counters_are_no_fault(tmp_path: Path) -> None:
    weights = IMAGE_MODELS["resnet20"]().state_dict()
    path = tmp_path / "published.safetensors"
    save_file({name: tensor for name, tensor in weights.items() if "num_batches" not in name}, path)
    assert load_task("cifar10/resnet20", data_dir=tmp_path, weights=path).name == "cifar10/resnet20"


def test_bad_normalisation_metadata(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(IMAGE_MODELS["resnet20"]().state_dict(), path, metadata={"input_normalisation": "imagenet"})
    with pytest.raises(InvalidWeights, match="imagenet"):
        load_task("cifar10/resnet20", data_dir=tmp_path, weights=path)
