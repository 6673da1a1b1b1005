"""A network that was repaired in memory, written as the file or folder that its noisy weights came from.

Or, where these weights stay, what stands beside them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from quietnn.checkpoints.changes import Change, replaced_by
from quietnn.checkpoints.history import recorded_names, recorded_noise
from quietnn.checkpoints.opening import check_target, open_checkpoint
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData
from quietnn.files import replacing_file, replacing_folder
from quietnn.observation import Observation, observe
from quietnn.repairs.base import Repaired


def read_noise_file(path: Path) -> dict[str, float]:
    """Noise variances by tensor name, from a table in JSON."""
    if not path.is_file():
        raise MissingData(f'there is no {path}; give a JSON file such as {{"conv1.weight": 0.01}}')
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidConfig(f'{path} is not JSON ({error}); write {{"conv1.weight": 0.01}}') from error
    is_number = isinstance(table, dict) and all(type(value) in (int, float) for value in table.values())
    if not table or not is_number:
        raise InvalidConfig(f'{path} is not a table of numbers by tensor name; write {{"conv1.weight": 0.01}}')
    return {name: float(value) for name, value in table.items()}


def observe_checkpoint(
    source: Path,
    model: nn.Module,
    *,
    noise_variance: float | Mapping[str, float] | None = None,
    wnr_db: float | None = None,
    recorded: bool = False,
) -> Observation[Any, Any]:
    """What arrived in a file, with the network that was loaded from it.

    The noise is given by its variance, one or by tensor, or as a weight-to-noise ratio, or is unknown. Or noise, gain,
    offset and noisy tensors are taken from what `quietnn transmit` `recorded` in the file.
    """
    if not recorded:
        return observe(model, noise_variance=noise_variance, wnr_db=wnr_db)
    if noise_variance is not None or wnr_db is not None:
        raise InvalidConfig("the noise was given, and is to be taken as recorded; leave out --recorded, or the number")
    history = open_checkpoint(source).history
    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = recorded_names(history)
    foreign = [name for name in names if name not in parameters]
    if foreign:
        raise InvalidWeights(
            f"the file records noise on {foreign[0]!r}, and the network has no parameter of that name; let the task "
            "make a network whose names are those of the file"
        )
    noise = recorded_noise(history, names)
    # A channel of another kind than white noise tells gain and offset of every tensor, one by one.
    gain: float | dict[str, float] = {name: noise.gain.get(name, 1.0) for name in names} if noise.gain else 1.0
    offset: float | dict[str, float] = {name: noise.offset.get(name, 0.0) for name in names} if noise.offset else 0.0
    return Observation(model, noise.variance, gain, offset, noisy=tuple(names))


def write_repaired(
    source: Path, out: Path, repaired: Repaired, *, overwrite: bool = False, streaming: Streaming | None = None
) -> tuple[str, ...]:
    """Write a copy of a file or folder with the tensors of a repaired network; all else stays, metadata included.

    Its history tells how the network was made. Returns the names of the tensors that changed.
    """
    checkpoint = open_checkpoint(source)
    check_target(source, out, overwrite=overwrite, files=checkpoint.files)
    state = repaired.model.state_dict()
    changes: dict[str, Change] = {}
    for name, shape in checkpoint.shapes.items():
        if name not in state or name not in checkpoint.floating:
            continue
        tensor = state[name]
        if tuple(tensor.shape) != tuple(shape):
            raise InvalidWeights(
                f"{name} has shape {tuple(tensor.shape)} in the network and {tuple(shape)} in {source}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidWeights(f"{name} is not finite after the repair; choose another --method")
        if not torch.equal(tensor, checkpoint.read(name).to(tensor.dtype)):
            changes[name] = replaced_by(tensor)
    written = {
        state[name].data_ptr() for name in checkpoint.shapes if name in state
    }  # a tied tensor has one name there
    foreign = [name for name, one in state.items() if name not in checkpoint.shapes and one.data_ptr() not in written]
    if not changes and foreign:
        raise InvalidWeights(
            f"the network calls a tensor {foreign[0]!r}, and {source} has no tensor of that name, so nothing would be "
            "written; let the task make a network whose names are those of the file"
        )
    passes = round(repaired.passes, 2)  # a sum of shares
    step = {"verb": "repair", "method": repaired.name, "passes": passes, "tensors": list(changes)}
    checkpoint.write(out, changes, step, streaming or Streaming(), overwrite=overwrite)
    return tuple(changes)


def write_beside(source: Path, out: Path, repaired: Repaired, received: nn.Module, *, overwrite: bool = False) -> None:
    """Write what stands beside the weights of a file, as safetensors; or of a folder, as an adapter that peft loads.

    Args:
        source: where the noisy weights came from; they are not written again.
        out: what to write, of the same kind.
        repaired: by a method that left the weights as they are.
        received: the network as it was loaded from there.
        overwrite: whether an output that is there is replaced.
    """
    if source.is_dir():
        with replacing_folder(out, overwrite=overwrite) as folder:
            repaired.beside.save_peft(folder, received, overwrite=True)
        return
    if out.suffix != ".safetensors":
        raise InvalidConfig(f"what stands beside weights is written as safetensors; name it {out.stem}.safetensors")
    told = {"method": repaired.name, "beside": source.name}
    with replacing_file(out, overwrite=overwrite) as file:
        save_file(repaired.beside.state_dict(), file, told)
