"""The names a user imports, and what importing them costs."""

import doctest
import subprocess
import sys

import pytest

import quietnn

HEAVY = ("matplotlib", "typer", "rich", "transformers", "sklearn", "scipy", "ray", "torchvision")


@pytest.mark.parametrize("name", quietnn.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    assert getattr(quietnn, name).__doc__


def test_the_list_of_names_is_sorted_and_complete() -> None:
    assert len(set(quietnn.__all__)) == len(quietnn.__all__)
    classes_and_functions = {
        name
        for name, value in vars(quietnn).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("quietnn.")
    }
    assert classes_and_functions <= set(quietnn.__all__)


def test_the_example_of_the_package_runs() -> None:
    failed, attempted = doctest.testmod(quietnn)
    assert (failed, attempted > 0) == (0, True)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """In a process of its own: this one has imported everything already."""
    program = f"import sys, quietnn; print(*[name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []


def test_reports_theory_and_help_start_without_torch() -> None:
    code = "import sys, quietnn, quietnn.reports.write, quietnn.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="denoize"):
        quietnn.denoize  # noqa: B018
