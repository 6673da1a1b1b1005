"""Write the reference pages that follow from the code: commands, configurations, records.

python tools/reference_pages.py
"""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import typer

from quietnn.cli.main import app
from quietnn.experiments.config import shipped_configs
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.noisy_training import NoisyTraining
from quietnn.federated.flower.task import Settings
from quietnn.federated.settings import FederationSettings
from quietnn.records import schema

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
_MADE = "<!-- Made by tools/reference_pages.py; change the code, then run it. -->"

MEANING = {
    "method": "the repair, a name of `quietnn.REPAIRS`",
    "wnr_db": "weight-to-noise ratio in decibels",
    "draw": "number of the noise draw",
    "run": "name of the run",
    "task": "name of the task",
    "config": "digest of the configuration",
    "version": "of quietnn",
    "status": "`diverged`, for a federation that did",
    "fixed": "the candidate `theta beta` of fixed temperatures",
    "channel": "the channel, where it is not white noise",
    "chosen": "what a method that chooses has chosen",
    "num_tuning_examples": "examples that the method was given",
    "num_test_examples": "examples that it was tested on",
    "right": "which of them are right: four to a hexadecimal digit, the first in front",
    "num_rounds": "rounds of the federation",
    "diverged_round": "round in which it diverged",
    "loss": "mean loss on the test examples",
    "tuning_accuracy": "accuracy on the tuning examples",
    "num_passes": "cost in forward passes over the tuning examples",
    "level": "what the channel was set to: bits, seconds",
    "rate": "channel uses for each weight",
    "seed": "of the draw",
    "seconds": "of computing",
    "noise_variance": "of the noise that was there",
    "assumed_noise_variance": "that the receiver believed in",
    "lambda_prime": "temperature of the population compensator",
    "beta": "temperature of the bias compensator",
    "accuracy": "on the test examples",
    "trials": "every point of a search",
    "group_temperatures": "chosen for each layer",
    "group_wnr_db": "that each layer sees",
    "tested_rounds": "rounds after which accuracy was taken",
    "round_accuracy": "accuracy after each of them",
    "deployed_wnr_db": "ratios at which the finished network was sent",
    "deployed_ml": "its accuracy as received, at each of them",
}
"""What the fields of an experiment's records say; those of theory are named after the paper's symbols."""

GROUPS = {
    "Repair": ("repair", "denoise", "tune"),
    "Files": ("inspect", "transmit"),
    "Networks": ("evaluate", "train", "channels", "gaussianity"),
    "Experiments": ("demo", "sweep", "federate", "theory", "configs"),
    "Reports": ("analyze", "report", "figures"),
}


def commands() -> str:
    """Every command with its arguments and options."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    verbs = {name: verb for name, verb in group.commands.items() if not verb.hidden}
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(verbs):
        raise SystemExit(f"put every command into one group of GROUPS; these differ: {set(grouped) ^ set(verbs)}")
    lines = [_MADE, "# Commands", ""]
    lines += ["`quietnn COMMAND --help` says the same. A mistake ends in a message and exit code 2.", ""]
    lines += ["`quietnn --version` prints the version.", "", "| command | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](#quietnn-{name}) | {_summary(verbs[name])} |" for name in grouped]
    for title, names in GROUPS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", f"### quietnn {name}", "", *_command(name, verbs[name])]
    return "\n".join(lines) + "\n"


def _summary(verb: click.Command) -> str:
    return (verb.help or "").strip().split("\n\n")[0].replace("\n", " ")


def _command(name: str, verb: click.Command) -> Iterator[str]:
    context = click.Context(verb, info_name=f"quietnn {name}")
    yield from (_escaped(" ".join(part.split())) + "\n" for part in (verb.help or "").strip().split("\n\n"))
    yield f"```text\n{verb.get_usage(context).removeprefix('Usage: ')}\n```\n"
    for parameter in verb.params:
        yield _parameter(parameter, context)


def _parameter(parameter: click.Parameter, context: click.Context) -> str:
    if isinstance(parameter, click.Argument):
        number = "any number of them" if parameter.nargs == -1 else "required"
        told = (getattr(parameter, "help", None) or "").strip().rstrip(".")
        return f"- `{parameter.make_metavar(context)}`: {_escaped(told)} ({number})."
    assert isinstance(parameter, click.Option)
    flag = "`, `".join((*parameter.opts, *parameter.secondary_opts))
    value = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
    help_text = (parameter.help or "").strip().rstrip(".")
    default = _default(parameter)
    return f"- `{flag}{value}`: {_escaped(help_text)}{f' ({default})' if default else ''}."


def _default(parameter: click.Option) -> str:
    if parameter.required:
        return "required"
    if parameter.is_flag:
        return f"default: `{parameter.opts[0]}`" if parameter.default and parameter.secondary_opts else ""
    shown = parameter.default is not None and not callable(parameter.default) and parameter.default != ()
    return f"default: `{parameter.default}`" if shown and not isinstance(parameter.default, list) else ""


def _escaped(text: str) -> str:
    """Text whose angle brackets and dollar signs Markdown leaves alone."""
    return re.sub(r"(\S*<\S+>\S*?)(?=[,.;]?(?:\s|$))", r"`\1`", text)


def configs() -> str:
    """The keys of every kind of configuration, with type, default and meaning."""
    lines = [_MADE, "# Configurations", ""]
    lines += ["A configuration is a TOML file. Its top-level keys are listed here."]
    lines += ["A table `[presets.NAME]` replaces some of them when `--preset NAME` is given."]
    lines += ["`--set key=value` replaces one more. An unknown key is refused by name.", ""]
    lines += ["`quietnn configs` lists the files that come with the package and copies them. They run by name:", ""]
    lines += [f"- `{name}`: {_first_comment(path)}" for name, path in shipped_configs().items()]
    lines += ["", "## quietnn sweep", "", _intro(NoisyInference), *_keys(NoisyInference)]
    lines += ["", "## quietnn federate", "", _intro(NoisyTraining), *_keys(NoisyTraining)]
    own = [key for key in _keys(Settings) if key not in _keys(NoisyTraining)]
    lines += ["", "## Flower's run configuration", ""]
    lines += [
        "The keys have dashes in place of underscores: `num-rounds`. These come beside those of the federation:",
        "",
    ]
    lines += own
    return "\n".join(lines) + "\n"


def _first_comment(path: Path) -> str:
    found = re.match(r"# (.*?)\n(?!# )", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"\n# ?", " ", found[1]) if found else ""
    return re.split(r"(?<=[.:;])\s", text)[0].rstrip(":;.") + "."


def _intro(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\nAttributes:")[0].split()) + "\n"


def _keys(kind: Any) -> list[str]:
    told = {**_attributes(FederationSettings), **_attributes(kind)}
    hints = typing.get_type_hints(kind)
    return [
        f"- `{field.name}` ({_type(hints[field.name])}, {_value(field)}): {told[field.name]}"
        for field in dataclasses.fields(kind)
    ]


def _attributes(kind: type) -> dict[str, str]:
    """The entries of the section `Attributes` of a docstring.

    >>> sorted(_attributes(NoisyInference))[:2]
    ['channel', 'criterion']
    """
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _type(hint: Any) -> str:
    kinds = [kind for kind in typing.get_args(hint) if kind not in (type(None), Ellipsis)]
    if typing.get_origin(hint) is tuple:
        return f"list of {_type(kinds[0])}".replace("number", "numbers")
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}[kinds[0] if kinds else hint]


def _value(field: "dataclasses.Field[Any]") -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default is None:
        return "may be left out"
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"default `{str(default).lower() if isinstance(default, bool) else default}`".replace("``", '`""`')


def records() -> str:
    """What a line of records.jsonl holds."""
    lines = [_MADE, "# Records", ""]
    lines += ["One result is one line of `records.jsonl`, a JSON object. Each line carries a checksum, `crc32`."]
    lines += ['Infinite numbers are written as text: `"inf"`. Fields that are not listed may hold anything.', ""]
    lines += [
        "`quietnn.records` reads and writes them. `quietnn.records.schema.problem` says what is wrong with one.",
        "",
    ]
    lines += ["```python"]
    lines += [">>> from quietnn.records.schema import problem"]
    lines += ['>>> problem({"method": "ml", "wnr_db": 3.0, "draw": 0, "accuracy": 1.5})']
    lines += ["'accuracy is 1.5; it must be a number from 0 to 1'", "", "```"]
    for name, table in schema.fields().items():
        lines += ["", f"## {name}", ""]
        if name == schema.SELECTION:
            lines += [f"The fields of `{schema.TRAINING}`. Such a record chose temperatures and is no result."]
        elif name.startswith(schema.THEORY):
            lines += ["| field | holds |", "|---|---|"]
            lines += [f"| `{field}` | {words} |" for field, words in table.items()]
        else:
            lines += ["| field | holds | what it says |", "|---|---|---|"]
            lines += [f"| `{field}` | {words} | {MEANING[field]} |" for field, words in table.items()]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {"commands.md": commands, "configs.md": configs, "records.md": records}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
