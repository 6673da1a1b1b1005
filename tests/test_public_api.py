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


def modules_loaded_by(statements: str, names: tuple[str, ...]) -> list[str]:
    """Which of these modules a fresh process has loaded after the statements."""
    program = f"import sys; {statements}; print(*[name for name in {names} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_the_public_names_load_torch_and_nothing_else_that_is_heavy() -> None:
    assert modules_loaded_by("from quietnn import *", ("torch", *HEAVY)) == ["torch"]


@pytest.mark.parametrize("module", ["quietnn", "quietnn.records", "quietnn.theory.family"])
def test_what_needs_no_torch_loads_none(module: str) -> None:
    assert modules_loaded_by(f"import {module}", ("torch", *HEAVY)) == []


@pytest.mark.parametrize(("former", "now"), quietnn._FORMER.items())
def test_a_former_name_still_works_and_warns(former: str, now: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"quietnn.{former} is called quietnn.{now} now"):
        assert getattr(quietnn, former) is getattr(quietnn, now)
    assert former not in quietnn.__all__
    assert now in quietnn.__all__


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match=r"denoize"):
        quietnn.denoize  # noqa: B018
