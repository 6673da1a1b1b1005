"""Options that verbs share mean the same everywhere."""

import pytest
from typer.testing import CliRunner

from quietnn.cli.main import app


@pytest.mark.parametrize(
    ("option", "help_text", "verbs"),
    [
        ("--level", "Accuracy at which gains are read", ("analyze", "report", "figures")),
        ("--data-dir", "$QUIETNN_DATA", ("train", "evaluate", "repair", "tune", "sweep", "federate", "channels")),
        ("--overwrite", "Replace an output that is there", ("transmit", "denoise", "repair", "tune", "configs")),
        ("--exclude", "Pattern of tensors to leave as they are", ("inspect", "transmit", "denoise")),
        ("--set", "Replace a key", ("sweep", "federate")),
    ],
)
def test_a_shared_option_has_one_name_and_one_help(option: str, help_text: str, verbs: tuple[str, ...]) -> None:
    for verb in verbs:
        shown = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).output
        assert option in shown, verb
        assert help_text in shown, verb
