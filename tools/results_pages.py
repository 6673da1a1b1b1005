"""The Results section of the site, written from the records: `python tools/results_pages.py docs/results`.

One page a network, one for federations, one for channels, and an index with the gains of all of them. Every number is
computed here from records; commands are those of results/README.md. No torch: records are enough.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results_tables import (
    INSTEAD,
    POSTERIOR,
    accuracy_table,
    gain_cell,
    gains_table,
    gap_table,
    has_method,
    interpolation,
    lead_table,
    unbroken,
)

from quietnn.methods import CLEAN, METHODS, REFERENCE, style_of
from quietnn.records import RECORDS, is_there
from quietnn.reports.accuracy_figures import accuracy_figure
from quietnn.reports.analysis import TaskAnalysis, analyse_runs
from quietnn.reports.figures import render
from quietnn.reports.gains import Gain
from quietnn.reports.quantities import PERPLEXITY
from quietnn.reports.runs import Run, read_run
from quietnn.reports.tables import ABSENT, Footnotes, Table, to_markdown
from quietnn.reports.titles import counted, listed, over_channels, task_title

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"

NUM_TUNING_IMAGES = 500
"""So many CIFAR-10 test images chose constants; runs that do not leave them out have them among theirs."""

FRESH = "fresh"
"""In the name of a folder whose noise seeds were not used during development; such a run goes before others."""

OWN_PAGES = {
    "regret": "What auto loses by choosing",
    "no-harm": "No harm without labels",
    "ablation": "What each part of the posterior is worth",
}
"""The folders of the benchmarks of these names, which write the summaries that are their pages."""

PARTLY_FRESH = {"minilm-fresh": "five"}
"""How many draws of a fresh run have development seeds."""

INTERVALS = (
    "Intervals cover draws: other noise and other tuning examples. They do not cover other test examples, nor another "
    "training of the network."
)

BESIDE = {
    "clean": "The accuracy of each network without noise, over all test examples.",
    "digits-noise-misjudged": "Three runs side by side; each has its tables on the page of the digits.",
    "fig7-resnet20": "Accuracy over both temperatures, for figure 7 of the paper. `quietnn report` draws the surfaces.",
    "gaussianity": "How far the weights of each layer are from Gaussian. No repair is measured.",
    "media-errors": "What each channel does to the weights. No repair is measured.",
    "resnet20-noise-misjudged": "Three runs side by side; each has its tables on the page of ResNet20.",
}
"""The folders that are no sweep of methods over noise levels, and why no page shows them."""

WIDE = "---\nhide: [toc]\n---"
"""The head of a page whose table needs the room beside it."""

ORDER = (
    "digits",
    "cifar10/resnet20",
    "cifar10/shufflenetv2-x0_5",
    "cifar10/shufflenetv2",
    "cifar10/resnet18",
    "sst2/minilm",
)
"""The networks in the order of pages and columns; others follow."""


@dataclass(frozen=True)
class Section:
    """One folder of records: its analysis, and what is said about it."""

    folder: str
    run: Run
    task: TaskAnalysis

    @property
    def is_fresh(self) -> bool:
        """Whether its seeds were not used during development."""
        return FRESH in self.folder


def write_pages(into: Path) -> list[Path]:
    """Write the pages and their figures into a folder; returns the pages, the index first."""
    into.mkdir(parents=True, exist_ok=True)
    sections = all_sections()
    networks = {task: sections[task] for task in sections if not task.startswith(("federated", "channels"))}
    pages: list[tuple[str, str, str]] = []
    for task, found in networks.items():
        name = _file_name(task)
        pages.append((name, task_title(task), network_page(name, task, found, into)))
    for name, title in (("federation", "Federation"), ("channels", "Channels")):
        if name == "federation" and "federated" in sections:
            pages.append((name, title, federation_page(name, sections["federated"], into)))
        if name == "channels" and "channels" in sections:
            pages.append((name, title, channels_page(name, sections["channels"], into)))
    for folder, title in OWN_PAGES.items():
        if (RESULTS / folder / "summary.md").is_file():
            text = (RESULTS / folder / "summary.md").read_text(encoding="utf-8")
            pages.append((folder, title, re.sub(r"(?<=[\d±]) (?=[±!d\d])", "\N{NO-BREAK SPACE}", text)))
    index = into / "index.md"
    index.write_text(index_page(networks, [(name, title) for name, title, _ in pages]), encoding="utf-8")
    written = [index]
    for name, _, text in pages:
        path = into / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def all_sections() -> dict[str, list[Section]]:
    """Every run by its page: a task, `federated` or `channels`; runs without curves are left out."""
    found: dict[str, list[Section]] = {}
    for folder in sorted(path for path in RESULTS.iterdir() if is_there(path / RECORDS)):
        run = read_run(folder)
        if not run.config:
            continue
        analysis = analyse_runs([run])
        for task in (*analysis.tasks, *analysis.trained):
            if task.curves or folder.name.startswith("no-noise"):
                page = next((name for name in ("federated", "media") if folder.name.startswith(name)), task.task)
                key = "channels" if page == "media" else page
                found.setdefault(key, []).append(Section(folder.name, run, task))
    for sections in found.values():
        sections.sort(key=lambda section: (not section.is_fresh, -len(section.run.records)))
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def network_page(name: str, task: str, sections: Sequence[Section], into: Path) -> str:
    """One network: a figure, and for each run its tables, its command and its caveats."""
    clean = [section for section in sections if section.folder.startswith("no-noise")]
    noisy = [section for section in sections if section not in clean]
    shown = max(noisy, key=lambda one: (len(one.task.curves), _num_points(one)))
    figure = _draw(into / f"{name}.svg", [shown.task], f"{task_title(task)}: `{shown.folder}`")
    parts = [f"# {task_title(task)}", INTERVALS, figure, *map(_section, noisy), *map(_without_noise, clean)]
    return _joined(parts)


def federation_page(name: str, sections: Sequence[Section], into: Path) -> str:
    """Networks trained over the air: final accuracy against the WNR of the updates."""
    shown = max(sections, key=lambda one: max(curve.num_draws for curve in one.task.curves))
    figure = _draw(into / f"{name}.svg", [shown.task], f"`{shown.folder}`")
    lead = "The accuracy is that of the last round. A draw is a seed of the whole training."
    return _joined(["# Federation", lead, INTERVALS, figure, *map(_section, sections)])


def channels_page(name: str, sections: Sequence[Section], into: Path) -> str:
    """Channels beside white noise: the gains of all in one table, then the accuracies of each."""
    panels = sorted(sections, key=_num_points, reverse=True)[:4]
    caption = listed(f"`{one.folder}`" for one in panels)
    figure = _draw(into / f"{name}.svg", [one.task for one in panels], caption)
    lead = "The WNR of a channel that is set by bits or seconds is what its error amounts to, weights over error."
    ordered = sorted(sections, key=lambda one: (_place(one.task.task), one.folder))
    return _joined(["# Channels", lead, INTERVALS, figure, *map(_section, ordered)])


def index_page(networks: dict[str, list[Section]], pages: Sequence[tuple[str, str]]) -> str:
    """The gains of every method on every network, and links to the pages."""
    notes = Footnotes()
    columns = [task for task, sections in networks.items() if any(_gains(section) for section in sections)]
    measured = {method for task in columns for section in networks[task] for method in _gains(section)}
    rows = []
    for method in (name for name in METHODS if name in measured):
        cells = [_best_cell(networks[task], method, notes) for task in columns]
        if any(cell != ABSENT for cell in cells):
            rows.append((METHODS[method].label, METHODS[method].needs, *cells))
    header = ("method", "needs", *(_short_title(task) for task in columns))
    levels: dict[str, list[str]] = {}
    for task in columns:
        shown = next(section.task for section in networks[task] if section.task.curves)
        levels.setdefault(shown.quantity.text(shown.level), []).append(_short_title(task))
    read_at = listed(f"{level} ({', '.join(names)})" for level, names in levels.items())
    caption = "Decibels of WNR saved against ML, with an interval over noise draws"
    about = [
        f"Gains are read at {read_at}.",
        "`needs` is what a method takes beside the noisy weights: nothing, inputs, inputs whose classes have known "
        "shares, or labels.",
    ]
    links = "\n".join(f"- [{title}]({name}.md)" for name, title in pages)
    others = sorted(
        path.name
        for path in RESULTS.iterdir()
        if path.is_dir() and path.name not in OWN_PAGES and not (path / "config.json").is_file()
    )
    rest = "\n".join(["## Without a page", "", *(f"- `results/{name}`: {_beside(name)}" for name in others)])
    parts = [WIDE, "# Results", " ".join(about), INTERVALS, to_markdown(Table(caption, header, tuple(rows)))]
    return _joined([*parts, notes.lines(), "## Pages", links, rest if others else ""])


def _beside(name: str) -> str:
    """What a folder without a page holds, with links to its tables."""
    tables = sorted((RESULTS / name).rglob("*.md"))
    links = [f"[{path.parent.name}](../../results/{path.relative_to(RESULTS).as_posix()})" for path in tables]
    return BESIDE.get(name, "no sweep") + (f" See {listed(links)}." if links else "")


def _section(section: Section) -> str:
    """One run: what it is, its tables with their notes, the command, the caveats."""
    task, notes = section.task, Footnotes()
    tables = [to_markdown(accuracy_table(task, notes))]
    if any(gain is not None and gain_cell(gain) != ABSENT for gain in task.gains):
        tables.append(to_markdown(gains_table(task, notes)))
    if task.quantity is PERPLEXITY and task.clean and has_method(task, REFERENCE):
        tables.append(to_markdown(gap_table(task, notes)))
        if has_method(task, POSTERIOR, *INSTEAD):
            tables.append(to_markdown(lead_table(task, notes)))
    title = over_channels(task_title(task.task), task.records)
    heading = f"## {section.folder}\n\n{title}. {_what(section)}"
    return _joined([heading, *tables, notes.lines(), *_caveats(section), _command(section.folder)])


def _without_noise(section: Section) -> str:
    """A run at an infinite WNR: the accuracy of each method."""
    quantity = section.task.quantity
    noiseless = [record for record in section.run.records if np.isinf(record["wnr_db"])]
    rows = tuple(
        (style_of(record["method"]).label, quantity.cell(quantity.merit(record), np.nan)) for record in noiseless
    )
    table = to_markdown(Table("Without noise", ("method", quantity.name), rows))
    return _joined([f"## {section.folder}\n\n{_what(section)}", table, _command(section.folder)])


def _what(section: Section) -> str:
    """The size of a run, from its records."""
    records = [record for record in section.task.records if record["method"] != CLEAN] or list(section.task.records)
    draws = len({(record.get("seed"), record.get("draw")) for record in records})
    seeds = sorted({record["seed"] for record in records if record.get("seed") is not None})
    tests = sorted({int(record["num_test_examples"]) for record in records if record.get("num_test_examples")})
    said = [counted(draws, "noise draw" if "num_rounds" not in section.run.config else "training")]
    said += [f"from seed {seeds[0]:,}"] if seeds else []
    said += [f"on {listed(f'{number:,}' for number in tests)} test examples"] if tests else []
    told = float(section.run.config.get("noise_misjudged_db") or 0)
    misjudged = f" The receiver is told a noise power that is {told:+g} dB off." if told else ""
    clean = section.task.clean
    without = f" Without noise: {section.task.quantity.clean(*clean, section.task.level)}." if clean else ""
    return f"{' '.join(said).capitalize()}.{misjudged}{without}"


def _caveats(section: Section) -> list[str]:
    """What a reader must know about a run beside its numbers."""
    said = []
    config, tests = section.run.config, [int(one.get("num_test_examples") or 0) for one in section.run.records]
    most = max(tests, default=0)
    is_early = int(config.get("first_test_position") or 0) < NUM_TUNING_IMAGES
    if section.task.task.startswith("cifar10") and "num_rounds" not in config and is_early and most:
        among = "" if most == NUM_TUNING_IMAGES else f" {NUM_TUNING_IMAGES} of"
        said.append(f"Constants of some methods were chosen on{among} these {most:,} test images.")
    if section.is_fresh:
        said.append(f"{_fresh(section)}.".capitalize())
    if all(curve.right is not None for curve in section.task.curves):
        said.append("Intervals of these gains cover other test examples as well.")
    return [" ".join(said)] if said else []


def _gains(section: Section) -> dict[str, Gain]:
    """The gains of a run by method; a method of several tuning sizes goes by its first."""
    pairs = zip(section.task.curves, section.task.gains, strict=True)
    return {curve.method: gain for curve, gain in reversed(list(pairs)) if gain is not None}


def _best_cell(sections: Sequence[Section], method: str, notes: Footnotes) -> str:
    """The gain from the first run that has one, fresh seeds first."""
    largest = max(sections, key=_num_points).run.config.get("weights")
    for section in sections:
        config, gain = section.run.config, _gains(section).get(method)
        is_usual = not config.get("noise_misjudged_db") and config.get("weights") == largest
        if is_usual and gain is not None and (cell := gain_cell(gain)) != ABSENT:
            reference = next(curve for curve in section.task.curves if curve.method == REFERENCE)
            gap = interpolation(reference, section.task.level)
            return unbroken(cell + notes.mark(_fresh(section)) + notes.mark(gap and f"ML's crossing is {gap}"))
    return ABSENT


def _fresh(section: Section) -> str:
    """What is to be said of noise seeds that were not used during development; nothing of others."""
    but = PARTLY_FRESH.get(section.folder)
    said = "noise seeds that were not used during development" + (f", except {but} draws" if but else "")
    return said if section.is_fresh else ""


def _num_points(section: Section) -> int:
    return sum(len(curve.measured) for curve in section.task.curves)


def _place(task: str) -> tuple[int, str]:
    return (ORDER.index(task) if task in ORDER else len(ORDER), task)


def _command(folder: str) -> str:
    """The commands of results/README.md that write to a folder."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    found = [line for line in lines if line.endswith(f"--out results/{folder}")]
    return "```sh\n" + "\n".join(found) + "\n```" if found else ""


def _draw(path: Path, tasks: Sequence[TaskAnalysis], caption: str) -> str:
    path.write_bytes(render(accuracy_figure(tasks), "svg"))
    what = f"{tasks[0].quantity.name.capitalize()} against WNR"
    return f"[![{what}]({path.name})]({path.name})\n\n*{caption}. Bands are one standard deviation over draws.*"


def _short_title(task: str) -> str:
    return task_title(task).partition(" on ")[0]


def _file_name(task: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", task.rpartition("/")[2].partition("@")[0].lower()).strip("-")


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


if __name__ == "__main__":
    print("\n".join(map(str, write_pages(Path(sys.argv[1])))))
