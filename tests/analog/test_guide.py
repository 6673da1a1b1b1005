"""The blocks of the guide that need aihwkit."""

from typing import Any

import pytest
import torch
from tests.pages import ROOT, blocks


@pytest.mark.analog
def test_the_guide_s_aihwkit_block_runs_and_repairs() -> None:
    page = (ROOT / "docs" / "guides" / "analog-chip.md").read_text(encoding="utf-8")
    every = [block for block in blocks(page) if block.language == "python"]
    (with_aihwkit,) = (block for block in every if "aihwkit" in block.text)
    namespace: dict[str, Any] = {"year": 365 * 24 * 3600}
    torch.manual_seed(0)
    setup = every[0].text.partition("memory = ")[0]
    for text in (setup, with_aihwkit.text):
        exec(compile(text, "analog-chip.md", "exec"), namespace)
    task, test = namespace["task"], namespace["test"]
    scores = [task.evaluate(namespace[name], test).loss for name in ("chip", "better")]
    assert scores[1] < scores[0]
    for before, after in zip(namespace["chip"].analog_tiles(), namespace["better"].analog_tiles(), strict=True):
        assert torch.equal(before.tile.get_weights(), after.tile.get_weights())
