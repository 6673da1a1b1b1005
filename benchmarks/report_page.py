"""How long a browser needs to draw the page of a large run, and how large its file is.

Records of a made-up run are written as a page; Chromium opens it as a file, and the page's own mark tells when it was
drawn. Filtering and sorting all rows are timed inside the page as well. Needs Chromium and the [browser] extra.
"""

import argparse
import shutil
import statistics as stats
import sys
import tempfile
import time
from pathlib import Path

from quietnn.records import Record
from quietnn.reports.page.document import write_report
from quietnn.reports.runs import Run

GOAL_SECONDS, GOAL_MEGABYTES = 2.0, 6.0
METHODS = ("ml", "mmse", "mmse_layerwise", "mmse_p", "mmse_pb", "mmse_pb_layerwise", "calibrated", "posterior")
SORT = """() => {
  const began = performance.now();
  document.getElementById('results-0-by-accuracy').click();
  document.body.offsetHeight;
  return performance.now() - began;
}"""
FILTER = """() => {
  const box = document.getElementById('results-0-search');
  const began = performance.now();
  box.value = 'mmse accuracy>0.5';
  box.dispatchEvent(new Event('input'));
  document.body.offsetHeight;
  return performance.now() - began;
}"""


def big_run(num_records: int) -> Run:
    """Eight methods, ten WNRs, as many draws as it takes."""
    num_draws = -(-num_records // (10 * len(METHODS)))
    records: list[Record] = [
        {
            "experiment": "noisy_inference",
            "run": "big",
            "task": "digits",
            "method": method,
            "wnr_db": float(2 * wnr),
            "draw": draw,
            "seed": draw,
            "accuracy": min(1.0, (0.1 + 0.08 * wnr + 0.01 * place + 0.1 * ((7919 * draw) % 101) / 101)),
            "loss": 1 / (1.1 + wnr + ((104729 * draw) % 997) / 997),
            "num_test_examples": 1000,
            "seconds": 0.1,
            "version": "benchmark",
        }
        for draw in range(num_draws)
        for wnr in range(10)
        for place, method in enumerate(METHODS)
    ]
    return Run("big", Path("big"), {}, tuple(records[:num_records]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("no Chromium on the PATH; install it, for example: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = big_run(options.records)
        began = time.perf_counter()
        page_file = write_report(Path(folder) / "report.html", [run])
        print(f"{len(run.records):,} records, written in {time.perf_counter() - began:.1f} s, "
              f"{page_file.stat().st_size / 1e6:.2f} MB (goal {GOAL_MEGABYTES:g})")  # fmt: skip
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        drawn, sorting, filtering = [], [], []
        for _ in range(options.repeats):
            page = browser.new_page()
            page.goto(page_file.as_uri())
            page.wait_for_selector("main[aria-busy=false]")
            drawn.append(page.evaluate("performance.getEntriesByName('drawn')[0].startTime"))
            sorting.append(page.evaluate(SORT))
            filtering.append(page.evaluate(FILTER))
            page.close()
        browser.close()
    for name, times in (("drawn after", drawn), ("sorted in", sorting), ("filtered in", filtering)):
        print(f"{name} {stats.median(times) / 1e3:.2f} s, median of {len(times)} ({min(times) / 1e3:.2f} at best)")
    print(f"goal: drawn within {GOAL_SECONDS:g} s")


if __name__ == "__main__":
    main()
