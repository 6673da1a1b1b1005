"""Tests mirror the source, and files stay short enough to be read."""

from pathlib import Path

import quietnn

PACKAGE = Path(quietnn.__file__).parent
TESTS = Path(__file__).parent
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

MOST_LINES = 300

LONG: frozenset[str] = frozenset(
    {
        "evidence.py",
        "experiments/noisy_inference.py",
        "federated/flower/strategy.py",
        "theory/errata.py",
    }
)
"""Files that may be longer."""

WITHOUT_TWIN: frozenset[str] = frozenset(
    {
        "checkpoints/atomic.py",
        "checkpoints/base.py",
        "checkpoints/denoise.py",
        "checkpoints/folder.py",
        "checkpoints/header.py",
        "checkpoints/inspect.py",
        "checkpoints/memory.py",
        "checkpoints/numbers.py",
        "checkpoints/opening.py",
        "checkpoints/pieces.py",
        "checkpoints/recorded.py",
        "checkpoints/repair.py",
        "checkpoints/streamed.py",
        "checkpoints/transmit.py",
        "checkpoints/workers.py",
        "experiments/channel_errors.py",
        "experiments/demo.py",
        "experiments/engines.py",
        "experiments/federate.py",
        "experiments/gaussianity.py",
        "experiments/noisy_inference.py",
        "experiments/theory_curves.py",
        "experiments/unit.py",
        "federated/air.py",
        "federated/carried.py",
        "federated/devices.py",
        "federated/estimators.py",
        "federated/flower/arrays.py",
        "federated/flower/client_app.py",
        "federated/flower/guard.py",
        "federated/flower/journal.py",
        "federated/flower/optimiser.py",
        "federated/flower/protocol.py",
        "federated/flower/replies.py",
        "federated/flower/server_app.py",
        "federated/flower/task.py",
        "federated/schemes.py",
        "federated/seeds.py",
        "federated/settings.py",
        "theory/checks.py",
        "theory/errata_page.py",
        "theory/mean_output.py",
        "theory/quadrature.py",
        "theory/shallow_exact.py",
    }
)
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
