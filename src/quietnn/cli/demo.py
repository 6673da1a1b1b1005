"""`quietnn demo`: why denoising weights beats using them as received, in under a minute."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder for records, figures and the page.")] = Path("quietnn-demo"),
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 2,
) -> None:
    """Put noise on a small trained network, denoise it every way, and show what each is worth."""
    from quietnn.cli.analyze import report
    from quietnn.cli.progress import record_progress
    from quietnn.experiments.config import load_config
    from quietnn.experiments.noisy_inference import NoisyInference
    from quietnn.experiments.sweep import sweep

    with record_progress("digits under noise") as on_record:
        sweep(load_config(NoisyInference, Path("digits")), out, num_workers=workers, on_record=on_record)
    report([out])
    typer.echo(
        "Plain MMSE does worse than ML here: it shrinks the signal, while BatchNorm's stored statistics expect its "
        "full size.\nCalibration fits those statistics to the noisy weights, with the same examples without labels."
    )
