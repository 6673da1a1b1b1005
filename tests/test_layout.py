"""Tests mirror the source, and files stay short enough to be read."""

from pathlib import Path

import quietnn

PACKAGE = Path(quietnn.__file__).parent
TESTS = Path(__file__).parent
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

MOST_LINES = 300

LONG: frozenset[str] = frozenset()
"""Files that may be longer."""

WITHOUT_TWIN: frozenset[str] = frozenset()
"""Modules whose tests stand elsewhere. This list only gets shorter."""


def twin(module: Path) -> Path:
    """The file that tests a module."""
    return module.with_name(f"test_{module.name}")


def test_every_module_has_a_twin_that_tests_it() -> None:
    missing = {
        str(module) for module in MODULES if module.name != "__init__.py" and not (TESTS / twin(module)).is_file()
    }
    assert missing - WITHOUT_TWIN == set(), "write tests/.../test_<name>.py for these"
    assert WITHOUT_TWIN - missing == set(), "these have one now (or are gone): take them off the list"


def test_files_are_short() -> None:
    long = {str(module) for module in MODULES if (PACKAGE / module).read_text().count("\n") > MOST_LINES}
    assert long - LONG == set(), f"split or simplify these: more than {MOST_LINES} lines"
    assert LONG - long == set(), "these are short now (or gone): take them off the list"
