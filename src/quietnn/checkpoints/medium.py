"""Send a checkpoint through any medium from file to file."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from quietnn.channels.base import Medium, Observation, is_by_tensor, of_tensor
from quietnn.channels.randomness import check_seed
from quietnn.checkpoints.base import Change, Checkpoint
from quietnn.checkpoints.opening import open_to_rewrite
from quietnn.checkpoints.recorded import check_new_noise
from quietnn.checkpoints.selection import Selection, ignore_selection
from quietnn.checkpoints.workers import Streaming
from quietnn.moments import Moments, block_moments
from quietnn.noise import NoiseVariance, mean_of, noise_by_tensor, one_variance
from quietnn.units import ratio_to_db
from quietnn.weights import Weights, WeightStatistics, check_weights


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

    The result is that of `quietnn.transmit` to the last bit. Media need whole tensors: quantisers and built-in memories
    one at a time, so that memory holds a few; links and the digital reference all of them at once (the model's power is
    shared among them), as they were and as they arrive. The mean noise variance, the gain and the offset of every
    tensor are recorded in the output's metadata.

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
    send = _one_by_one if is_by_tensor(medium) else _together
    told, changes = send(checkpoint, names, medium, seed, streaming)
    step = {"verb": "transmit", "channel": description, "seed": seed, **told.fields(names), "tensors": selection.noisy}
    checkpoint.write(out, changes, step, streaming, overwrite=overwrite)
    return told.wnr_db


class _Told:
    """What the medium tells of each tensor."""

    def __init__(self) -> None:
        self._noise: dict[str, float] = {}
        self._gain: dict[str, float] = {}
        self._offset: dict[str, float] = {}
        self._moments: dict[str, Moments] = {}

    def add(self, weights: Weights, observation: Observation[dict[str, Tensor], NoiseVariance]) -> None:
        """Remember how these tensors arrived, and the moments that they had."""
        check_weights(observation.received)
        noise = noise_by_tensor(observation.noise_variance, weights)
        for name, tensor in weights.items():
            self._noise[name] = one_variance(observation.noise_variance) if noise is None else mean_of(noise[name])
            self._gain[name] = of_tensor(observation.gain, name)
            self._offset[name] = of_tensor(observation.offset, name)
            self._moments[name] = block_moments(tensor)

    @property
    def wnr_db(self) -> float:
        """The effective WNR of the whole model, as `effective_wnr_db` has it."""
        sizes = {name: float(counts.sum()) for name, (counts, _, _) in self._moments.items()}
        total = math.fsum(self._noise[name] * size for name, size in sizes.items())
        variance = WeightStatistics.from_moments(list(self._moments.values())).variance
        return ratio_to_db(variance * math.fsum(sizes.values()) / total) if total else math.inf

    def fields(self, names: Sequence[str]) -> dict[str, Any]:
        """What is recorded, in the order of the names, whichever thread was first."""
        return {
            "wnr_db": self.wnr_db if math.isfinite(self.wnr_db) else None,
            "noise_variance_by_tensor": {name: self._noise[name] for name in names},
            "gain_by_tensor": {name: self._gain[name] for name in names},
            "offset_by_tensor": {name: self._offset[name] for name in names},
        }


def _together(
    checkpoint: Checkpoint, names: Sequence[str], medium: Medium, seed: int, streaming: Streaming
) -> tuple[_Told, dict[str, Change]]:
    """Send all tensors at once."""
    told, read = _Told(), dict[str, Tensor]()
    _each(checkpoint, names, streaming, read.__setitem__)
    weights = {name: read[name] for name in names}
    observation = medium.transmit(weights, seed=seed)
    told.add(weights, observation)
    return told, {name: _copying(received.reshape(-1)) for name, received in observation.received.items()}


def _one_by_one(
    checkpoint: Checkpoint, names: Sequence[str], medium: Medium, seed: int, streaming: Streaming
) -> tuple[_Told, dict[str, Change]]:
    """Send each tensor by itself: once for what the medium tells of it, and once more when it is written."""
    told, lock = _Told(), Lock()

    def send(name: str, tensor: Tensor) -> None:
        observation = medium.transmit({name: tensor}, seed=seed)
        with lock:
            told.add({name: tensor}, observation)

    def receive(name: str) -> Tensor:
        weights: dict[str, Tensor] = {}
        _each(checkpoint, [name], Streaming(num_threads=1), weights.__setitem__)
        return medium.transmit(weights, seed=seed).received[name].reshape(-1)

    _each(checkpoint, names, streaming, send)
    return told, {name: _arriving(partial(receive, name)) for name in names}


def _each(
    checkpoint: Checkpoint, names: Sequence[str], streaming: Streaming, use: Callable[[str, Tensor], None]
) -> None:
    """Hand over the named tensors, each whole, as soon as the last of its stretches was read."""
    shapes = {name: tuple(checkpoint.shapes[name]) for name in names}
    stretches: dict[str, dict[int, Tensor]] = {name: {} for name in names}
    missing = {name: math.prod(shape) for name, shape in shapes.items()}
    lock = Lock()

    def look(name: str, values: Tensor, start: int) -> None:
        part = values.clone()
        with lock:
            stretches[name][start] = part
            missing[name] -= part.numel()
            if missing[name]:
                return
        parts = stretches.pop(name)
        use(name, torch.cat([parts.pop(first) for first in sorted(parts)]).view(shapes[name]))

    checkpoint.visit(names, look, streaming)


def _copying(flat: Tensor) -> Change:
    def change(values: Tensor, start: int) -> None:
        values.copy_(flat[start : start + values.numel()])

    return change


def _arriving(receive: Callable[[], Tensor]) -> Change:
    """A change to what arrives, which is received with its first stretch and forgotten with its last."""
    held: list[Tensor] = []
    num_left, lock = [0], Lock()

    def change(values: Tensor, start: int) -> None:
        with lock:
            if not held:
                held.append(receive())
                num_left[0] = held[0].numel()
            flat = held[0]
            num_left[0] -= values.numel()
            if not num_left[0]:
                held.clear()
        values.copy_(flat[start : start + values.numel()])

    return change
