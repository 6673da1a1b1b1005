"""Broken files of every kind that quietnn reads: each is used, or refused with a `QuietnnError`, soon and cleanly.

    python tests/fuzz/fuzz.py --seconds 120            # the seed is the commit's; at least 10,000 files or it fails
    python tests/fuzz/fuzz.py --seconds 3600 --seed 7  # by hand
    python tests/fuzz/fuzz.py --cases                  # those that failed once

A file that fails is kept in `--keep` under the name of its kind. Once mended, it goes to `tests/fuzz/cases`.
"""

import argparse
import faulthandler
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kinds import KINDS, Kind, mutated

from quietnn.errors import QuietnnError

HERE = Path(__file__).parent
CASES = HERE / "cases"
LEAST_CASES = 10_000
SLOWEST = 15.0
"""Seconds of computing for one file; figures take two."""

HANGS = 180.0
"""Seconds on the clock after which a file is taken to hang its reader, also on a busy machine."""

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where files cost no disk."""

EXTRA_BYTES = 6 * 2**30
"""Memory that may be asked for beyond what is in use at the start."""


@dataclass
class Run:
    """What was tried so far."""

    keep: Path
    used: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    def try_one(self, kind: Kind, content: bytes, name: str) -> None:
        """Give one file to its reader and look at what happens, and at what is left behind."""
        with tempfile.TemporaryDirectory(dir=MEMORY) as place:
            folder = Path(place)
            path = kind.lay_out(folder, content)
            before = sorted(folder.rglob("*"))
            began = time.process_time()
            try:
                kind.use(path)
                self.used[kind.name] += 1
            except QuietnnError as error:
                self.refused[kind.name] += 1
                if not str(error).strip():
                    self._fail(kind, content, name, "an error without a message")
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                self._fail(kind, content, name, "".join(traceback.format_exception(error)[-6:]))
            taken = time.process_time() - began
            self.slowest = max(self.slowest, (taken, f"{kind.name} {name}"))
            if taken > SLOWEST:
                self._fail(kind, content, name, f"took {taken:.1f} s of computing")
            left = set(folder.rglob("*")) - {*before, *(folder / one for one in kind.writes)}
            if left := [one for one in left if not any((folder / made) in one.parents for made in kind.writes)]:
                self._fail(kind, content, name, f"left behind {left}")

    def _fail(self, kind: Kind, content: bytes, name: str, why: str) -> None:
        place = self.keep / kind.name
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
        self.failed.append(f"{place / name}: {why}")
        print(self.failed[-1], file=sys.stderr, flush=True)


def seed_of_commit() -> int:
    """The first digits of the commit, so that each commit tries other files and anybody can try the same ones."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return int(found.stdout[:12], 16)


def main() -> int:
    """Run until the time is over; 0 if nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=110.0)
    parser.add_argument("--num-cases", type=int, default=None, help="stop after so many, whatever the time")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--cases", action="store_true", help="only the files that failed once")
    parser.add_argument("--kind", action="append", help="only this kind, may be repeated")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA_BYTES, resource.RLIM_INFINITY))
    kinds = [kind for kind in KINDS if kind.is_there() and (not asked.kind or kind.name in asked.kind)]
    run = Run(asked.keep.absolute())
    began = time.monotonic()
    for kind in kinds:
        for path in sorted((CASES / kind.name).glob("*")):
            run.try_one(kind, path.read_bytes(), path.name)
    if asked.cases:
        return report(run, kinds, began)
    seed = seed_of_commit() if asked.seed is None else asked.seed
    print(f"seed {seed}: python tests/fuzz/fuzz.py --seed {seed}", flush=True)
    originals = [(kind, content) for kind in kinds for content in kind.originals()]
    for kind, content in originals:
        used = run.used[kind.name]
        run.try_one(kind, content, "original")
        if run.used[kind.name] == used:
            run.failed.append(f"{kind.name}: the reader refuses what is not damaged")
            print(run.failed[-1], file=sys.stderr)
    number, rng = 0, random.Random(seed)
    shares = [kind.share / len(kind.originals()) for kind, _ in originals]
    while time.monotonic() - began < asked.seconds and number != asked.num_cases:
        faulthandler.dump_traceback_later(HANGS, exit=True)  # a file that hangs its reader ends the run
        kind, content = rng.choices(originals, shares)[0]
        run.try_one(kind, mutated(content, kind, rng), f"seed{seed}-{number}")
        number += 1
    faulthandler.cancel_dump_traceback_later()
    if asked.num_cases is None and not asked.kind and number < LEAST_CASES:
        run.failed.append(f"{number:,} files are fewer than {LEAST_CASES:,}; the machine or a reader is too slow")
        print(run.failed[-1], file=sys.stderr)
    return report(run, kinds, began)


def report(run: Run, kinds: list[Kind], began: float) -> int:
    """Say what was tried, and the exit code."""
    for kind in kinds:
        print(f"{kind.name:>16}: {run.used[kind.name]:>7,} used, {run.refused[kind.name]:>7,} refused")
    total = run.used.total() + run.refused.total() + len(run.failed)
    seconds = time.monotonic() - began
    print(
        f"{total:,} files in {seconds:.0f} s, the slowest ({run.slowest[1]}) in {run.slowest[0]:.2f} s, "
        f"{len(run.failed)} failures"
    )
    print(json.dumps({"files": total, "failures": len(run.failed), "seconds": round(seconds)}))
    if not run.failed:
        shutil.rmtree(run.keep, ignore_errors=True)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
