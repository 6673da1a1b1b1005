"""`quietnn tune`: find temperatures for a noisy checkpoint with a task."""

from pathlib import Path
from typing import Annotated

import typer


def tune(
    task: Annotated[str, typer.Argument(help="digits, cifar10/<network>, sst2/<encoder>, or package.module:function")],
    weights: Annotated[Path, typer.Option(help="The noisy weights (sst2: a folder in transformers layout).")],
    noise_variance: Annotated[float, typer.Option(help="sigma_z^2, of the noise on every weight.")],
    out: Annotated[Path, typer.Option(help="The file to write, for quietnn denoise --temperatures.")],
    groups: Annotated[str, typer.Option(help="whole or layerwise.")] = "whole",
    num_examples: Annotated[int, typer.Option(help="Labelled examples to judge by; never test data.")] = 100,
    with_beta: Annotated[bool, typer.Option(help="Search beta too (MMSE_pb), or leave it at zero (MMSE_p).")] = True,
    seed: Annotated[int, typer.Option(help="Which examples.")] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Data folder (default: $QUIETNN_DATA, ~/.cache/quietnn)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Search the temperatures under which the denoised network does best on a few labelled examples."""
    from rich.console import Console

    from quietnn.channels.randomness import check_seed
    from quietnn.checkpoints.temperatures import TunedTemperatures, check_writable, write_temperatures
    from quietnn.errors import unknown_choice
    from quietnn.repairs.affine import Temperatures
    from quietnn.repairs.temperatures.tune import Search
    from quietnn.repairs.temperatures.tune import tune as search
    from quietnn.tasks.registry import load_task
    from quietnn.weights import GROUPINGS

    if groups not in GROUPINGS:
        raise unknown_choice("groups", groups, GROUPINGS)
    check_seed(seed)
    check_writable(out, source=weights, overwrite=overwrite)
    loaded = load_task(task, data_dir=data_dir, weights=weights)
    model, examples = loaded.load_model(), loaded.tuning_examples(num_examples, seed)

    with Console(stderr=True).status("searching"):
        made = search(
            model,
            loaded.evidence(examples),
            noise_variance=noise_variance,
            groups=groups,
            with_beta=with_beta,
            search=Search("coarse-to-fine"),
        )
    result, best = made.details["search"], made.details["temperatures"]
    pairs = {"whole": best} if isinstance(best, Temperatures) else best
    reached = result.best.score
    assert reached is not None
    found = {
        "task": loaded.name,
        "num_examples": num_examples,
        "seed": seed,
        "num_trials": len(result.trials),
        **({"score": reached.number} if reached.accuracy is None else {"accuracy": reached.accuracy}),
    }
    write_temperatures(out, TunedTemperatures(groups, pairs, noise_variance, found))
    typer.echo(
        f"wrote {out}: {reached} {'on' if reached.accuracy is None else 'of'} {num_examples} tuning examples after "
        f"{len(result.trials)} trials; next: quietnn denoise {weights} OUT --temperatures {out}"
    )
