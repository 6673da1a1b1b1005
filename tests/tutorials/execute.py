"""Run the tutorials from top to bottom and store what they print and draw.

python tests/tutorials/execute.py                       # all of them, in place
python tests/tutorials/execute.py NAME --into FOLDER    # one of them, the result beside the original

It needs `pip install quietnn[hf,notebooks]`. One thread, so that two runs on one machine give the same digits.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.ipynb"))
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}
"""Of the process that runs a notebook; tqdm would rather have widgets, which no bar here needs."""


def executed(path: Path) -> Any:
    """The notebook with fresh outputs; it runs in an empty folder and finds the commands of this environment."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=None,
            startup_timeout=600,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
            kernel_name="python3",
        )
        client.execute(env={**os.environ, **SETTINGS, "PATH": commands})
    notebook.metadata["language_info"] = {"name": "python"}  # no version, which would differ on every machine
    return notebook


def main() -> None:
    """Execute and write."""
    import nbformat

    parser = argparse.ArgumentParser(description="Run the tutorials and store their outputs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones; all if left out: {', '.join(NAMES)}")
    parser.add_argument("--into", type=Path, default=TUTORIALS, help="the folder to write to (default: in place)")
    asked = parser.parse_args()
    for name in asked.names or NAMES:
        nbformat.write(executed(TUTORIALS / f"{name}.ipynb"), asked.into / f"{name}.ipynb")


if __name__ == "__main__":
    main()
