"""Gather the verbs into one command and turn a `QuietnnError` into a message and exit code 2."""

import inspect as inspection
import sys
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperArgument, TyperCommand
from typer.models import ArgumentInfo

from quietnn import __version__
from quietnn.cli.checkpoints import denoise, inspect, transmit
from quietnn.cli.experiments import configs, demo, federate, sweep, theory
from quietnn.cli.networks import channels, evaluate, gaussianity, media, train
from quietnn.cli.repair import auto, repair, tune
from quietnn.cli.reports import analyze, figures, report
from quietnn.cli.terminal import plain_markup
from quietnn.errors import QuietnnError


class Verb(TyperCommand):
    """A command whose arguments keep their help, which typer 0.20 loses under click 8.5."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        hints = inspection.unwrap(self.callback).__annotations__ if self.callback else {}
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.help is None:
                told = getattr(hints.get(parameter.name or ""), "__metadata__", ())
                parameter.help = next((info.help for info in told if isinstance(info, ArgumentInfo)), None)


app = typer.Typer(
    name="quietnn",
    help="Repair neural networks whose weights arrived with noise on them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in (
    *(demo, analyze, report, figures, evaluate, gaussianity, channels, configs, sweep, federate, theory, train),
    *(inspect, transmit, repair, denoise, tune),
):
    app.command(cls=Verb)(verb)
app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(auto)
app.command("media", hidden=True)(media)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Repair neural networks whose weights arrived with noise on them."""
    if show:
        typer.echo(f"quietnn {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    try:
        app()
    except QuietnnError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}; choose another place, or mend its permissions")


def _fail(message: str) -> NoReturn:
    console = Console(stderr=True, emoji=False)
    console.print("[bold red]error:[/]", plain_markup(message), highlight=False, soft_wrap=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
