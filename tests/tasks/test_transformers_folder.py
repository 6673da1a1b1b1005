"""Folders in transformers layout."""

from pathlib import Path

import pytest

from quietnn.errors import InvalidWeights
from quietnn.tasks.transformers_folder import load_model, read_config, transformers_package


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
