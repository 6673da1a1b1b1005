"""Verbs that run experiments: `quietnn demo`, `configs`, `sweep`, `federate` and `theory`."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quietnn.cli import options
from quietnn.records import Record

if TYPE_CHECKING:
    from rich.table import Table

    from quietnn.records import Damage

_HEADINGS = {"quadratic": "Theorem 1, quadratic", "shallow": "Theorem 2, tanh", "lemma 1": "Lemma 1"}


def demo(
    out: Annotated[Path, typer.Option(help="Folder for records, figures and the page.")] = Path("quietnn-demo"),
    workers: options.Workers = 2,
    language_model: Annotated[
        Path | None, typer.Option(help="Instead: a language model in transformers layout, with --text.")
    ] = None,
    text: Annotated[list[Path] | None, typer.Option(help="Text to repair the language model by.")] = None,
    wnr_db: Annotated[float, typer.Option(help="WNR of the noise on the language model.")] = 14.0,
    prompt: Annotated[str, typer.Option(help="What the language model goes on from.")] = "One day",
) -> None:
    """Put noise on a small trained network, repair it in six ways, and show what each is worth.

    Safe to kill: run it again and it does only what is missing.
    """
    if language_model is not None:
        _demo_language_model(language_model, text or [], wnr_db, prompt)
        return
    from quietnn.cli.progress import record_progress
    from quietnn.cli.reports import report_inference
    from quietnn.experiments.config import load_config
    from quietnn.experiments.noisy_inference import NoisyInference
    from quietnn.experiments.sweep import sweep

    with record_progress("digits under noise") as on_record:
        experiment = load_config(NoisyInference, Path("digits"), preset="demo")
        sweep(experiment, out, num_workers=workers, on_record=on_record)
    report_inference([out])
    typer.echo(
        "ML is the network as received. Calibration refits BatchNorm's statistics to it by 100 inputs, in one pass.\n"
        "Self-training moves the weights too, by the same inputs; the posterior, by inputs and labels.\n"
        "MMSE alone does harm here: it shrinks the signal, while BatchNorm's stored statistics expect its full size."
    )


def _demo_language_model(folder: Path, text: list[Path], wnr_db: float, prompt: str) -> None:
    """What a language model writes clean, under noise and repaired, and its perplexity on text it has not seen."""
    from quietnn.channels.transmit import transmit
    from quietnn.cli.progress import pass_progress
    from quietnn.methods import METHODS
    from quietnn.repairs.front import repair
    from quietnn.tasks.language_model import generate, language_model, split_windows

    task = language_model(folder, tuning=text or None)
    known, held_out = split_windows(task.tuning_examples(40, 0))
    model = task.load_model()
    observation = transmit(model, wnr_db=wnr_db, seed=0)
    networks = {"clean": model, f"with noise, {wnr_db:g} dB": observation.model}
    for method in ("directions", "posterior"):
        with pass_progress(METHODS[method].label, METHODS[method].cost) as ended:
            repaired = repair(observation, task.evidence(known), method=method)
            ended(repaired.passes)
        networks[METHODS[method].label] = repaired.model
    for name, network in networks.items():
        score = task.score_of(network, held_out)
        typer.echo(f"{name} (perplexity {score.number:.4g})\n    {generate(network, folder, prompt)}")


def configs(
    names: Annotated[list[str] | None, typer.Argument(help="Which to copy; all are listed if none is named.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to copy them to.")] = Path(),
    overwrite: options.Overwrite = False,
) -> None:
    """List the configurations that come with quietnn, or copy some to change them."""
    from quietnn.errors import InvalidConfig
    from quietnn.experiments.config import find_config, shipped_configs

    if not names:
        shipped = shipped_configs()
        width = max(map(len, shipped))
        for name, path in shipped.items():
            verb = "federate" if name.startswith("federated") else "sweep"
            first_line = path.read_text(encoding="utf-8").partition("\n")[0]
            typer.echo(f"{verb:<8}  {name:<{width}}  {first_line.strip('# ')}")
        typer.echo(
            "run one with: quietnn sweep NAME, quietnn federate NAME; copy one with: quietnn configs NAME --out ."
        )
        return
    targets = {out / (path := find_config(Path(name))).name: path for name in names}
    there = [target for target in targets if target.exists()]
    if there and not overwrite:
        raise InvalidConfig(f"{there[0]} is there already; give another --out, or replace it with --overwrite")
    out.mkdir(parents=True, exist_ok=True)
    for target, path in targets.items():
        shutil.copyfile(path, target)
        typer.echo(f"wrote {target}")


def sweep(
    config: Annotated[Path, typer.Argument(help="A TOML file, or the name of a ready-made one: resnet20.")],
    out: options.RunFolder = None,
    preset: options.Preset = None,
    set_: options.Settings = None,
    engine: Annotated[str, typer.Option(help="inline, processes or ray.")] = "processes",
    address: Annotated[str | None, typer.Option(help="Address of an existing Ray cluster.")] = None,
    workers: options.Workers = 2,
    threads: options.WorkerThreads = 1,
    data_dir: options.DataDir = None,
) -> None:
    """Add noise, denoise with every method, test: one record for each WNR, draw and method.

    Safe to kill: run the same command again and it does only what is missing.
    """
    from quietnn.cli.progress import record_progress
    from quietnn.experiments.config import load_config
    from quietnn.experiments.noisy_inference import NoisyInference
    from quietnn.experiments.sweep import sweep as run
    from quietnn.records import other_versions

    experiment = load_config(NoisyInference, config, preset=preset, overrides=set_ or [])
    folder = out or Path("runs") / experiment.name
    where: dict[str, Any] = {"engine": engine, "num_workers": workers, "num_threads": threads, "data_dir": data_dir}
    with record_progress(experiment.name) as on_record:
        records = run(experiment, folder, address=address, on_record=on_record, on_damage=_say_damage, **where)
    if sentence := other_versions(records):
        typer.echo(sentence)
    typer.echo(f"{len(records)} records in {folder}; next: quietnn analyze {folder}")


def federate(
    config: Annotated[Path, typer.Argument(help="A TOML file, or the name of a ready-made one: federated-digits.")],
    out: options.RunFolder = None,
    preset: options.Preset = None,
    set_: options.Settings = None,
    engine: Annotated[str, typer.Option(help="inline, or processes for several runs at a time.")] = "inline",
    workers: options.Workers = 1,
    threads: options.WorkerThreads = 1,
    data_dir: options.DataDir = None,
) -> None:
    """Let devices train one network together and send their updates over a noisy channel.

    Every round is checkpointed: kill it at any time, run the same command again, and it ends the same.
    """
    from quietnn.cli.progress import federation_progress
    from quietnn.experiments.config import load_config
    from quietnn.experiments.noisy_training import NoisyTraining
    from quietnn.experiments.sweep import sweep as run
    from quietnn.reports.write import write_federated_report

    experiment = load_config(NoisyTraining, config, preset=preset, overrides=set_ or [])
    folder = out or Path("runs") / experiment.name
    where: dict[str, Any] = {"engine": engine, "num_workers": workers, "num_threads": threads, "data_dir": data_dir}
    progress = federation_progress(experiment.name, len(experiment.units()), experiment.num_rounds)
    with progress as (on_record, on_round):
        records = run(experiment, folder, on_record=on_record, on_round=on_round, on_damage=_say_damage, **where)
    typer.echo("\n".join(write_federated_report(folder)))
    typer.echo(f"{len(records)} records in {folder}; read {folder / 'summary.md'}")


def _say_damage(damage: "Damage") -> None:
    typer.echo(f"set aside: {damage}; its record is made again", err=True)


def theory(
    out: Annotated[Path, typer.Option(help="Directory for records.jsonl and the figures.")] = Path("quietnn-theory"),
    seed: Annotated[int, typer.Option(help="Seed of the simulations and of the random settings.")] = 0,
    samples: Annotated[int, typer.Option(help="Draws per simulated number.")] = 200_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON lines and nothing else.")] = False,
) -> None:
    """Check both theorems against simulation and draw the paper's figures 2, 3, 5 and 6."""
    from rich.console import Console

    from quietnn.errors import InvalidConfig
    from quietnn.experiments.theory_checks import theory_records
    from quietnn.files import write_whole
    from quietnn.records import encode
    from quietnn.reports.theory_figures import theory_figures
    from quietnn.reports.write import write_figures

    if out.exists() and not out.is_dir():
        raise InvalidConfig(f"--out is {out}, which is a file; it must be a directory, new or old")
    progress = Console(stderr=True)
    with progress.status("simulating both networks"):
        records = list(theory_records(seed=seed, num_samples=samples))
    with progress.status("drawing the figures"):
        # Replaced as a whole: an older run's records are not mixed in.
        write_whole(out / "records.jsonl", "".join(encode(record) + "\n" for record in records).encode())
        figures = write_figures(theory_figures(records), out, formats=("png", "svg"))
    checks = [record for record in records if record["kind"] == "check"]
    if as_json:
        for record in checks:
            print(encode(record))
        return
    console = Console()
    console.print(checks_table(checks))
    console.print(f"Records and {len(figures)} figure files are in {out}/", highlight=False, soft_wrap=True)


def checks_table(checks: Sequence[Record]) -> "Table":
    """The checks under the names of their theorems; red where closed form and simulation disagree."""
    from rich import box
    from rich.table import Table

    title = "Closed form against Monte Carlo; z is in standard errors"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("setting", no_wrap=True)
    for name in ("closed", "Monte Carlo", "z", "printed", "z"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for record in checks:
        if record["network"] != previous:
            previous = record["network"]
            table.add_row(f"[bold]{_HEADINGS[previous]}[/]")
        table.add_row(
            f" {record['setting']}",
            f"{record['closed_form']:.4g}",
            f"{record['monte_carlo']:.4g} ± {record['standard_error']:.1g}",
            _coloured(record["z"]),
            f"{record['printed']:.4g}",
            _coloured(record["z_printed"]),
        )
    return table


def _coloured(z: float) -> str:
    """Beyond four standard errors the two disagree."""
    text = f"{z:+.1f}" if abs(z) < 100 else f"{z:+.0f}"
    return f"[red]{text}[/]" if abs(z) > 4 else text
