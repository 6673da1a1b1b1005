"""`quietnn denoise`: a noisy checkpoint in, an estimate of the clean one out."""

from pathlib import Path
from typing import Annotated

import typer


def denoise(
    source: Annotated[Path, typer.Argument(help="A .safetensors or .pt file, or a model folder.")],
    out: Annotated[Path, typer.Argument(help="Where to write; of the same kind.")],
    noise_variance: Annotated[float | None, typer.Option(help="sigma_z^2, of the noise on every weight.")] = None,
    wnr_db: Annotated[float | None, typer.Option(help="Or the WNR in dB: sigma_z^2 = var(r) / (1 + WNR).")] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Or what quietnn transmit recorded in the file.")
    ] = False,
    method: Annotated[str | None, typer.Option(help="ml, mmse, mmse_p or mmse_pb (default: mmse).")] = None,
    lambda_prime: Annotated[float | None, typer.Option(help="Population compensator; 0 is MMSE, 1 is ML.")] = None,
    beta: Annotated[float | None, typer.Option(help="Bias compensator.")] = None,
    groups: Annotated[str | None, typer.Option(help="whole or layerwise (default: whole).")] = None,
    temperatures: Annotated[Path | None, typer.Option(help="A file from quietnn tune, instead of a method.")] = None,
    form: Annotated[str, typer.Option(help="centred, uncentred or zero-mean.")] = "centred",
    noisy: Annotated[list[str] | None, typer.Option(help="Pattern of noisy tensors, instead of the rule.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Pattern of tensors to leave alone.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads (default: by the number of cores).")] = None,
) -> None:
    """Remove what can be removed of the noise on a checkpoint's weights, with what a receiver has.

    Streams files of any size; everything is checked before the first byte is written.
    """
    from quietnn.checkpoints.denoise import denoise_checkpoint
    from quietnn.checkpoints.temperatures import read_temperatures
    from quietnn.cli.byte_progress import byte_progress
    from quietnn.cli.selection import show_selection

    tuned = read_temperatures(temperatures) if temperatures is not None else None
    with byte_progress("denoise", threads=threads) as streaming:
        done = denoise_checkpoint(
            source,
            out,
            noise_variance=noise_variance,
            wnr_db=wnr_db,
            recorded=recorded,
            method=method,
            lambda_prime=lambda_prime,
            beta=beta,
            temperatures=tuned,
            groups=groups,
            form=form,
            noisy=noisy or [],
            exclude=exclude or [],
            overwrite=overwrite,
            streaming=streaming,
            on_selection=show_selection,
        )
    only = done.denoisers.get("whole")
    how = f"theta {only.theta:.6g}, rho {only.rho:.6g}" if only else f"{len(done.denoisers)} groups"
    typer.echo(f"wrote {out}: noise variance {done.noise_variance:.6g}, {how}")
