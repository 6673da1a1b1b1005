"""`quietnn evaluate`: the accuracy of clean weights on test data."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    task: Annotated[str, typer.Argument(help="digits, cifar10/<network>, sst2/<encoder>, or package.module:function")],
    weights: Annotated[Path | None, typer.Option(help="Other weights (sst2: a folder in transformers layout)")] = None,
    num_examples: Annotated[int | None, typer.Option(help="A fixed subset of the test data (default: all)")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Data folder (default: $QUIETNN_DATA, ~/.cache/quietnn)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object")] = False,
) -> None:
    """Test a task's clean weights: accuracy with its standard error, and loss."""
    from quietnn.tasks.registry import load_task
    from quietnn.weights import check_module

    loaded = load_task(task, data_dir=data_dir, weights=weights)
    model = loaded.load_model()
    check_module(model)
    score = loaded.score_of(model, loaded.test_examples(num_examples))
    if as_json:
        fields = {
            "task": loaded.name,
            "accuracy": score.accuracy,
            "standard_error": None if score.accuracy is None else score.standard_error,
            **({} if score.value is None else {"score": score.value}),
            "loss": score.loss,
            "num_examples": score.num_examples,
        }
        typer.echo(json.dumps(fields))
    else:
        reached = f"score {score}"
        if score.accuracy is not None:
            reached = f"accuracy {100 * score.accuracy:.2f} % +- {100 * score.standard_error:.2f} (standard error)"
        typer.echo(f"{loaded.name}: {reached} on {score.num_examples} examples, loss {score.loss:.4f}")
