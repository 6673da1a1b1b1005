"""The pages of the reference say what the code says."""

import re

import pytest

import quietnn
from quietnn.cli.main import app
from quietnn.records import schema
from tools import reference_pages

API = (reference_pages.REFERENCE / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_a_page_made_from_the_code_is_current(name: str) -> None:
    stored = (reference_pages.REFERENCE / name).read_text(encoding="utf-8")
    assert stored == reference_pages.PAGES[name](), "run: python tools/reference_pages.py"


def test_every_public_name_is_on_the_page_once() -> None:
    assert sorted(re.findall(r"^::: quietnn\.(\w+)$", API, flags=re.MULTILINE)) == quietnn.__all__


def test_every_command_and_option_is_listed() -> None:
    page = reference_pages.commands()
    for command in app.registered_commands:
        assert command.hidden or f"### quietnn {command.name or command.callback.__name__}\n" in page
    assert "- `--max-passes FLOAT`: Most passes over the examples that auto may take (default: `220`)." in page


def test_every_key_has_a_meaning() -> None:
    assert "- `num_draws` (whole number, default `5`): noise draws at every WNR." in reference_pages.configs()


def test_every_field_of_a_record_is_listed() -> None:
    page = reference_pages.records()
    for name, table in schema.fields().items():
        assert f"## {name}\n" in page
        assert all(f"| `{field}` |" in page for field in table)
    experiments = schema.fields()[schema.INFERENCE] | schema.fields()[schema.TRAINING]
    assert reference_pages.MEANING.keys() == experiments.keys()
