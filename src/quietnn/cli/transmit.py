"""`quietnn transmit`: a reproducible noisy copy of a checkpoint."""

from pathlib import Path
from typing import Annotated, Any

import typer


def transmit(
    source: Annotated[Path, typer.Argument(help="A .safetensors or .pt file, or a model folder.")],
    out: Annotated[Path, typer.Argument(help="Where to write; of the same kind.")],
    seed: Annotated[int, typer.Option(help="Which noise; the same seed gives the same file.")],
    wnr_db: Annotated[float | None, typer.Option(help="Weight-to-noise ratio in dB.")] = None,
    noise_variance: Annotated[float | None, typer.Option(help="Or the variance of the noise.")] = None,
    channel: Annotated[
        str | None,
        typer.Option(help="Or another channel, such as quantise:num_bits=4, pcm:seconds=3600, fading:wnr_db=20."),
    ] = None,
    power: Annotated[
        str | None, typer.Option(help="What --wnr-db is relative to: variance (default) or second-moment.")
    ] = None,
    noisy: Annotated[list[str] | None, typer.Option(help="Pattern of noisy tensors, instead of the rule.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Pattern of tensors to leave alone.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads (default: by the number of cores).")] = None,
) -> None:
    """Send a checkpoint through a Gaussian channel or another channel; the truth goes into the output's metadata."""
    from quietnn.channels.awgn import AWGN
    from quietnn.channels.table import channel_named
    from quietnn.checkpoints.transmit import transmit_checkpoint, transmit_checkpoint_through
    from quietnn.cli.byte_progress import byte_progress
    from quietnn.cli.selection import show_selection
    from quietnn.errors import InvalidConfig

    if [wnr_db, noise_variance, channel].count(None) != 2:
        raise InvalidConfig(
            f"--wnr-db is {wnr_db}, --noise-variance {noise_variance} and --channel {channel}; give exactly one"
        )
    if channel is not None and power is not None:
        raise InvalidConfig(f"--power {power} goes with --wnr-db; a channel has settings of its own")
    asked: dict[str, Any] = {
        "seed": seed,
        "noisy": noisy or [],
        "exclude": exclude or [],
        "overwrite": overwrite,
        "on_selection": show_selection,
    }
    with byte_progress("transmit", threads=threads) as streaming:
        if channel is not None:
            effective_db = transmit_checkpoint_through(
                source, out, channel=channel_named(channel), description=channel, streaming=streaming, **asked
            )
            told = f"through {channel}, effective WNR {effective_db:.2f} dB"
        else:
            white = AWGN(wnr_db=wnr_db, noise_variance=noise_variance, power=power or "variance")
            told = f"noise variance {transmit_checkpoint(source, out, channel=white, streaming=streaming, **asked):.9g}"
    typer.echo(f"wrote {out}: {told}, seed {seed}")
