"""Send a checkpoint through any medium from file to file."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from quietnn.channels.base import Medium
from quietnn.channels.named import effective_wnr_db
from quietnn.channels.randomness import check_seed
from quietnn.checkpoints.base import Change, Checkpoint
from quietnn.checkpoints.opening import open_to_rewrite
from quietnn.checkpoints.recorded import check_new_noise
from quietnn.checkpoints.selection import Selection, ignore_selection
from quietnn.checkpoints.workers import Streaming
from quietnn.noise import mean_of, noise_by_tensor, one_variance
from quietnn.weights import check_weights


def transmit_checkpoint_through(
    source: Path,
    out: Path,
    *,
    medium: Medium,
    description: str,
    seed: int,
    noisy: Sequence[str] = (),
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    streaming: Streaming | None = None,
    on_selection: Callable[[Selection], None] = ignore_selection,
) -> float:
    """Write what the medium makes of a checkpoint and return the effective WNR in dB.

    The result is that of `quietnn.transmit` to the last bit. Media need whole tensors, and some the whole model (its
    largest weight, its power), so unlike `transmit_checkpoint` this holds the noisy tensors in memory. The mean noise
    variance and the gain of every tensor are recorded in the output's metadata.

    Args:
        source: a safetensors file, a folder in Hugging Face layout, or a `.pt` file of tensors.
        out: where to write; of the same kind.
        medium: what the weights go through, see `quietnn.channels.named`.
        description: how the medium was asked for; recorded too.
        seed: which noise.
        noisy: patterns of the noisy tensors' names, instead of the rule.
        exclude: patterns of names to leave alone.
        overwrite: replace an output that is there.
        streaming: threads and chunks.
        on_selection: told which tensors are noisy, before anything is written.
    """
    streaming = streaming or Streaming()
    check_seed(seed)
    checkpoint, selection, names = open_to_rewrite(
        source, out, noisy=noisy, exclude=exclude, overwrite=overwrite, on_selection=on_selection
    )
    check_new_noise(checkpoint.history, selection.noisy, seed)
    weights = _read(checkpoint, names, streaming)
    observation = medium.transmit(weights, seed=seed)
    check_weights(observation.received)
    noise = noise_by_tensor(observation.noise_variance, weights)
    if noise is None:
        noise = dict.fromkeys(weights, one_variance(observation.noise_variance))
    gain = observation.gain
    wnr_db = effective_wnr_db(weights, observation.noise_variance)
    step = {
        "verb": "transmit",
        "channel": description,
        "seed": seed,
        "wnr_db": wnr_db if math.isfinite(wnr_db) else None,
        "noise_variance_by_tensor": {name: mean_of(own) for name, own in noise.items()},
        "gain_by_tensor": {name: gain[name] if isinstance(gain, Mapping) else gain for name in weights},
        "tensors": selection.noisy,
    }
    changes = {name: _change(received) for name, received in observation.received.items()}
    checkpoint.write(out, changes, step, streaming)
    return wnr_db


def _read(checkpoint: Checkpoint, names: Sequence[str], streaming: Streaming) -> dict[str, Tensor]:
    """The named tensors, whole."""
    stretches: dict[str, dict[int, Tensor]] = {name: {} for name in names}

    def look(name: str, values: Tensor, start: int) -> None:
        stretches[name][start] = values.clone()

    checkpoint.visit(names, look, streaming)
    return {
        name: torch.cat([parts[start] for start in sorted(parts)]).view(tuple(checkpoint.shapes[name]))
        for name, parts in stretches.items()
    }


def _change(received: Tensor) -> Change:
    flat = received.reshape(-1)

    def change(values: Tensor, start: int) -> None:
        values.copy_(flat[start : start + values.numel()])

    return change
