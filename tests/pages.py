"""The code blocks of a page, and how they are run."""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from quietnn.cli.main import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN = {"python", "sh"}
"""The languages of blocks that run; others (`toml`, `text`) show files and output."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", flags=re.MULTILINE | re.DOTALL
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        language: what stands behind the fence.
        text: what stands inside.
        line: of the fence, for messages.
        mark: the comment directly above: `not run: REASON`, `slow`, or nothing.
    """

    language: str
    text: str
    line: int
    mark: str

    @property
    def runs(self) -> bool:
        """Whether a test runs it."""
        return self.language in RUN and not self.mark.startswith("not run: ")

    @property
    def slow(self) -> bool:
        """Whether only the slow tests do."""
        return self.mark == "slow"


def blocks(markdown: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [
        Block(
            language=match["language"],
            text=match["text"],
            line=markdown[: match.start("language")].count("\n") + 1,
            mark=match["mark"] or "",
        )
        for match in _BLOCK.finditer(markdown)
    ]


def documents() -> list[Path]:
    """The pages of docs/ that somebody wrote; those of results are generated."""
    return sorted(path for path in DOCS.rglob("*.md") if not path.is_relative_to(DOCS / "results"))


def pages() -> list[str]:
    """Those with code that runs, by their path."""
    return [
        path.relative_to(ROOT).as_posix()
        for path in documents()
        if any(block.runs for block in blocks(path.read_text(encoding="utf-8")))
    ]


def run_page(page: str, folder: Path, *, with_slow: bool) -> None:
    """Run the blocks of a page one after another in a folder; what it says it prints must be what it prints.

    A `text` block directly after a Python block is its output. Numbers in it may be off by five, since they differ a
    little between processors.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.language == "text" and printed is not None:
            assert same_output(printed, block.text), f"{page}, line {block.line}: it prints {printed!r}"
        printed = None
        if not block.runs or (block.slow and not with_slow):
            continue
        if block.language == "sh":
            _run_shell(block, page, folder)
        elif block.text.startswith(">>> "):
            _run_doctest(block, page, namespace)
        else:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * block.line + block.text, page, "exec"), namespace)
            printed = out.getvalue()


def same_output(printed: str, shown: str) -> bool:
    """Whether two texts are the same, numbers by about five.

    >>> same_output("posterior 91 %", "posterior 93 %"), same_output("posterior 91 %", "ml 91 %")
    (True, False)
    """
    if _NUMBER.sub("#", printed).split() != _NUMBER.sub("#", shown).split():
        return False
    pairs = zip(_NUMBER.findall(printed), _NUMBER.findall(shown), strict=True)
    return all(abs(float(one) - float(other)) <= 5.0 for one, other in pairs)


def _run_doctest(block: Block, page: str, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, namespace, page, page, block.line)
    out = io.StringIO()
    result = doctest.DocTestRunner().run(test, out=out.write, clear_globs=False)
    namespace.update(test.globs)
    assert result.failed == 0, f"{page}, line {block.line}:\n{out.getvalue()}"


def _run_shell(block: Block, page: str, folder: Path) -> None:
    """Commands of quietnn alone run in this process, which saves starting torch for each; all else runs in bash."""
    lines = [shlex.split(line, comments=True) for line in block.text.replace("\\\n", " ").splitlines()]
    commands = [line for line in lines if line]
    if all(command[0] == "quietnn" for command in commands) and not re.search(r"[|>;&$]", block.text):
        for command in commands:
            done = CliRunner().invoke(app, command[1:])
            assert done.exit_code == 0, (
                f"{page}, line {block.line}: {' '.join(command)}\n{done.output}\n{done.exception!r}"
            )
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    shell = ["bash", "-euo", "pipefail", "-c", block.text]
    done_there = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True)
    assert done_there.returncode == 0, f"{page}, line {block.line}:\n{done_there.stdout}\n{done_there.stderr}"
