"""The picture of who may import whom, kept true."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import quietnn

PACKAGE = Path(quietnn.__file__).parent

ORDER = (
    "errors",
    "batches",
    "units",
    "files",
    "records",
    "methods",
    "theory",
    "moments",
    "random_effects",
    "weights",
    "noise",
    "targets",
    "observation",
    "score",
    "losses",
    "variants",
    "teaching",
    "evidence",
    "watching",
    "noise_power",
    "channels",
    "repairs",
    "analog",
    "checkpoints",
    "tasks",
    "federated",
    "experiments",
    "cli",
)
"""First-level modules; each imports only from those that stand before it. `reports` stands apart, see below."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def first_level(path: Path) -> str:
    """The first-level module that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> Iterator[str]:
    """Every absolute module name that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; write the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph() -> dict[str, set[str]]:
    """Which first-level modules each first-level module imports, itself aside."""
    graph: dict[str, set[str]] = {}
    for path in modules():
        used = {name.split(".")[1] for name in imported_names(path) if name.startswith("quietnn.")}
        graph.setdefault(first_level(path), set()).update(used - {first_level(path)})
    return graph


GRAPH = import_graph()


def test_every_module_has_a_place() -> None:
    assert set(GRAPH) - {"__init__", "reports"} <= set(ORDER)


@pytest.mark.parametrize("name", sorted(set(GRAPH) & set(ORDER) - {"cli"}))
def test_imports_point_upwards_only(name: str) -> None:
    above = set(ORDER[: ORDER.index(name)])
    assert GRAPH[name] <= above, f"{name} may import {sorted(above)} only"


def test_nobody_imports_the_command_line() -> None:
    assert [name for name, imported in GRAPH.items() if "cli" in imported] == []


def test_the_command_line_may_import_everything_that_has_a_place() -> None:
    assert GRAPH["cli"] <= {*ORDER, "reports", "__version__"}


def test_reports_need_no_torch() -> None:
    """Of the channels they read the table alone, which names what needs torch and imports none of it."""
    free = {"reports", "errors", "units", "files", "records", "methods"}
    table = PACKAGE / "channels" / "table.py"
    assert GRAPH["reports"] <= {*free, "channels"}
    for file in modules():
        if first_level(file) == "reports":
            used = [name for name in imported_names(file) if name.startswith("quietnn.channels.")]
            assert all(name.startswith("quietnn.channels.table.") for name in used), file
        if first_level(file) in free or file == table:
            assert not [name for name in imported_names(file) if name.split(".")[0] == "torch"], file


def test_theory_sees_neither_modules_nor_data() -> None:
    for file in modules():
        if first_level(file) == "theory":
            assert not [name for name in imported_names(file) if name.split(".")[0] == "torch"], file


def test_there_are_no_cycles() -> None:
    remaining = {name: imported & set(GRAPH) for name, imported in GRAPH.items()}
    while leaves := [name for name, imported in remaining.items() if not imported & remaining.keys()]:
        for name in leaves:
            del remaining[name]
    assert not remaining, f"these import each other: {sorted(remaining)}"
