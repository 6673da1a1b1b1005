"""The networks by name have the published sizes, names and output shapes."""

import pytest
import torch

from quietnn.tasks.models import IMAGE_MODELS

NUM_PARAMETERS = {
    "resnet18": 11_173_962,
    "resnet34": 21_282_122,
    "shufflenetv2": 1_263_854,
    "shufflenetv2-x0_5": 352_042,
    "resnet20": 272_474,
    "resnet32": 466_906,
    "resnet44": 661_338,
    "resnet56": 855_770,
}


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_parameter_count(name: str) -> None:
    assert sum(parameter.numel() for parameter in IMAGE_MODELS[name]().parameters()) == NUM_PARAMETERS[name]


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_logits_for_full_and_small_images(name: str) -> None:
    model = IMAGE_MODELS[name]().eval()
    with torch.inference_mode():
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
        assert model(torch.zeros(1, 3, 16, 16)).shape == (1, 10)


@pytest.mark.parametrize(
    ("name", "some_keys"),
    [
        ("resnet18", ["layer2.0.shortcut.0.weight", "layer2.0.shortcut.1.running_var", "linear.bias"]),
        ("resnet20", ["layer2.0.downsample.0.weight", "layer3.2.bn2.bias", "fc.weight"]),
        ("shufflenetv2", ["conv1.weight", "layer1.0.conv5.weight", "layer3.3.bn3.bias", "bn2.bias", "linear.weight"]),
        ("shufflenetv2-x0_5", ["conv1.0.weight", "stage2.0.branch1.2.weight", "stage4.3.branch2.6.bias", "fc.bias"]),
    ],
)
def test_state_dict_names_are_the_published_ones(name: str, some_keys: list[str]) -> None:
    keys = IMAGE_MODELS[name]().state_dict().keys()
    assert set(some_keys) <= set(keys)
