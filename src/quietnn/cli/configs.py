"""`quietnn configs`: the ready-made configurations, to look at, to run by name, to copy."""

import shutil
from pathlib import Path
from typing import Annotated

import typer


def configs(
    names: Annotated[list[str] | None, typer.Argument(help="Which to copy; all are listed if none is named.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to copy them to.")] = Path(),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """List the configurations that come with quietnn, or copy some to change them."""
    from quietnn.errors import InvalidConfig
    from quietnn.experiments.config import find_config, shipped_configs

    if not names:
        shipped = shipped_configs()
        width = max(map(len, shipped))
        for name, path in shipped.items():
            verb = "federate" if name.startswith("federated") else "sweep"
            typer.echo(
                f"{verb:<8}  {name:<{width}}  {path.read_text(encoding='utf-8').partition(chr(10))[0].strip('# ')}"
            )
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
