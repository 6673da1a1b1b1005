"""The names a user imports, and what importing them costs."""

import ast
import dataclasses
import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import quietnn

HEAVY = ("matplotlib", "typer", "rich", "transformers", "sklearn", "scipy", "ray", "torchvision")


MOST_NAMES = 41
"""As many as there are, so that one that is lost is seen; a new one takes the place of another."""
SOURCE = Path(quietnn.__file__)


def imported_for_types(source: str) -> list[str]:
    """The names that a module imports under `if TYPE_CHECKING:`."""
    blocks = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return [alias.asname or alias.name for node in imports for alias in node.names]


def homes_for_types(source: str) -> dict[str, str]:
    """Where type checkers are sent for each name."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def own_docstring(value: object) -> str:
    """What somebody wrote about a class or function; a dataclass without a docstring is given its signature as one."""
    text = (vars(value).get("__doc__") if isinstance(value, type) else value.__doc__) or ""
    if isinstance(value, type) and dataclasses.is_dataclass(value) and text.startswith(f"{value.__name__}("):
        return ""
    return text


def is_constant(name: str) -> bool:
    return name in {"REPAIRS"}


def test_the_list_of_names_is_sorted_and_short() -> None:
    assert quietnn.__all__ == sorted(quietnn.__all__) == list(quietnn._HOMES)
    assert len(quietnn.__all__) == MOST_NAMES


def test_type_checkers_know_the_same_names() -> None:
    for_types = imported_for_types(SOURCE.read_text())
    assert sorted(for_types) == quietnn.__all__


def test_type_checkers_and_python_find_a_name_in_the_same_module() -> None:
    for_types = homes_for_types(SOURCE.read_text())
    assert {name: for_types[name] for name in quietnn._HOMES} == quietnn._HOMES


@pytest.mark.parametrize("name", quietnn.__all__)
def test_every_public_name_has_a_docstring_of_its_own_with_an_example(name: str) -> None:
    value = getattr(quietnn, name)
    assert own_docstring(value)
    assert is_constant(name) or doctest.DocTestParser().get_examples(own_docstring(value))


def test_a_signature_and_a_parents_docstring_are_none_of_ones_own() -> None:
    @dataclasses.dataclass
    class Undocumented:
        number: int

    class Heir(dict):  # type: ignore[type-arg]
        pass

    assert Undocumented.__doc__ == "Undocumented(number: int)"
    assert own_docstring(Undocumented) == own_docstring(Heir) == ""


@pytest.mark.parametrize("name", quietnn._FORMER)
def test_a_former_name_works_with_a_warning_that_says_where_it_is_now(name: str) -> None:
    module, _, now = quietnn._FORMER[name].partition(":")
    with pytest.warns(DeprecationWarning, match=re.escape(f"quietnn.{name} is now {module}.{now};")):
        value = getattr(quietnn, name)
    assert value is getattr(import_module(module), now)
    assert name not in quietnn.__all__
    assert name not in dir(quietnn), "not offered by completion"


@pytest.mark.parametrize("name", quietnn._GONE)
def test_a_name_that_is_gone_says_what_does_it_now(name: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(quietnn._GONE[name])):
        getattr(quietnn, name)


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


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match=r"denoize"):
        quietnn.denoize  # noqa: B018
