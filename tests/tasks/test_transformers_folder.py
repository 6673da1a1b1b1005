"""Folders in transformers layout."""

from pathlib import Path

import pytest
import torch
from tests.small_language_models import write_language_model
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.observation import Observation
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.tasks.language_model import language_model
from quietnn.tasks.transformers_folder import (
    load_language_model,
    load_model,
    read_config,
    save_activations,
    transformers_package,
)


@pytest.mark.parametrize("content", ["[1]", "{", '"text"'])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidWeights, match=r"config\.json is not a model's configuration"):
        read_config(tmp_path)


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    transformers = transformers_package("a test")
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(InvalidWeights, match="cannot be loaded as a test"):
        load_model(transformers.AutoModelForCausalLM, tmp_path, "a test")


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    write_language_model(tmp_path, "llama", num_steps=0)
    path = tmp_path / "config.json"
    vocabulary = read_config(tmp_path)["vocab_size"]
    path.write_text(path.read_text().replace(f'"vocab_size": {vocabulary}', '"vocab_size": 9000'))
    with pytest.raises(InvalidWeights, match=rf"model\.embed_tokens\.weight \({vocabulary}, 32\) for \(9000, 32\)"):
        load_language_model(tmp_path)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "t5"])
def test_saved_activations_give_the_same_gradient_from_fewer_of_them(tmp_path: Path, family: str) -> None:
    pytest.importorskip("transformers")
    write_language_model(tmp_path, family, num_steps=0)
    task = language_model(tmp_path, tuning=tmp_path / "train.txt")
    known = task.tuning_examples(4, 0)
    gradients, num_saved = [], []
    for save in (False, True):
        model = task.load_model()
        if save:
            save_activations(model)
        observation = Observation(model, 0.01)
        scratch = Scratch(observation, task.evidence(known))
        held: list[int] = []

        def keep(tensor: Tensor, held: list[int] = held) -> Tensor:
            held.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
            gradients.append(scratch.gradient(observation.weights, torch.arange(4), torch.Generator())[1])
        num_saved.append(sum(held))
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)
    assert num_saved[1] < num_saved[0]


def test_a_network_without_blocks_saves_nothing() -> None:
    with pytest.raises(InvalidConfig, match="--save-memory"):
        save_activations(nn.Linear(2, 2))
