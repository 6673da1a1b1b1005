"""Send a checkpoint through any channel from file to file."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from torch import Tensor

from quietnn.channels.base import Channel, is_by_tensor, settle
from quietnn.channels.randomness import check_seed
from quietnn.checkpoints.base import Change, Checkpoint
from quietnn.checkpoints.on_disk import OnDisk
from quietnn.checkpoints.opening import open_to_rewrite
from quietnn.checkpoints.recorded import check_new_noise
from quietnn.checkpoints.room import Room
from quietnn.checkpoints.selection import Selection, ignore_selection
from quietnn.checkpoints.workers import Streaming, run
from quietnn.moments import Moments, WeightStatistics, block_moments, one_torch_thread
from quietnn.noise import NoiseVariance, TensorNoise, mean_of, noise_by_tensor, one_variance
from quietnn.observation import Observation, of_tensor
from quietnn.units import ratio_to_db
from quietnn.weights import Weights, check_weights


def transmit_checkpoint_through(
    source: Path,
    out: Path,
    *,
    channel: Channel,
    description: str,
    seed: int,
    noisy: Sequence[str] = (),
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    streaming: Streaming | None = None,
    on_selection: Callable[[Selection], None] = ignore_selection,
) -> float:
    """Write what the channel makes of a checkpoint and return the effective WNR in dB.

    The result is that of `quietnn.transmit` to the last bit. Channels need whole tensors, but only some at a time: what
    one must know of all of them (their power, what bits they cost) it settles first, reading one after the other.
    Memory is that of the largest tensor. A channel of your own that neither treats tensors by themselves (`by_tensor`)
    nor settles (`quietnn.channels.base.Settling`) gets all of them at once, and they are held, as they arrived, until
    they are written. The mean noise variance, the gain and the offset of every tensor are recorded in the output's
    metadata.

    Args:
        source: a safetensors file, a folder in Hugging Face layout, or a `.pt` file of tensors.
        out: where to write; of the same kind.
        channel: what the weights go through, see `quietnn.channels.table`.
        description: how the channel was asked for; recorded too.
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
    weights = OnDisk(checkpoint, names, on_progress=streaming.on_progress)
    sending = _Sending(checkpoint, names, _by_tensor(channel, weights, seed), seed)
    told = sending.look(streaming)
    step = {"verb": "transmit", "channel": description, "seed": seed, **told.fields(names), "tensors": selection.noisy}
    changes = {name: _arriving(partial(sending.receive, name)) for name in names}
    checkpoint.write(out, changes, step, streaming, overwrite=overwrite)
    return told.wnr_db


class _Told:
    """What the channel tells of each tensor."""

    def __init__(self) -> None:
        self._noise: dict[str, float] = {}
        self._gain: dict[str, float] = {}
        self._offset: dict[str, float] = {}
        self._moments: dict[str, Moments] = {}

    def add(self, name: str, tensor: Tensor, observation: Observation[dict[str, Tensor], NoiseVariance]) -> None:
        """Remember how a tensor arrived, and the moments that it had; from any thread."""
        check_weights(observation.received)
        noise = noise_by_tensor(observation.noise_variance, {name: tensor})
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


class _Sending:
    """Sends each tensor by itself: once for what the channel tells of it, and once more when it is written."""

    def __init__(self, checkpoint: Checkpoint, names: Sequence[str], channel: Channel, seed: int) -> None:
        self._checkpoint, self._channel, self._seed = checkpoint, channel, seed
        self._sizes = {name: math.prod(checkpoint.shapes[name]) for name in names}
        self._room = Room(max(self._sizes.values()))

    def look(self, streaming: Streaming) -> _Told:
        """What the channel tells of all tensors, of several at a time where there is room."""
        told = _Told()

        def work(name: str, _: Tensor) -> None:
            with self._room.taken(self._sizes[name]):
                tensor, observation = self._sent(name)
                told.add(name, tensor, observation)
            streaming.on_progress(tensor.nbytes)

        run(self._sizes, work, streaming.readers, chunk_values=0)
        return told

    def receive(self, name: str) -> Tensor:
        """What arrives of a tensor, in a row."""
        with one_torch_thread(), self._room.taken(self._sizes[name]):
            return self._sent(name)[1].received[name].reshape(-1)

    def _sent(self, name: str) -> tuple[Tensor, Observation[dict[str, Tensor], NoiseVariance]]:
        """A tensor and what arrives of it, by its name in the file; the channel knows it by the one of its noise."""
        tensor, key = self._checkpoint.read(name), self._checkpoint.noise_name(name)
        observation = self._channel.transmit({key: tensor}, seed=self._seed)
        return tensor, observation if key == name else _renamed(observation, key, name)


def _renamed(
    observation: Observation[dict[str, Tensor], NoiseVariance], old: str, new: str
) -> Observation[dict[str, Tensor], NoiseVariance]:
    """The same of one tensor, by another name."""
    noise = observation.noise_variance
    return Observation(
        {new: observation.received[old]},
        {new: noise[old]} if isinstance(noise, Mapping) else noise,
        of_tensor(observation.gain, old),
        of_tensor(observation.offset, old),
    )


def _by_tensor(channel: Channel, weights: Weights, seed: int) -> Channel:
    """The channel as it treats each of these tensors by itself; one that cannot has them all sent here and now."""
    with one_torch_thread():
        settled = settle(channel, weights)
        if is_by_tensor(settled):
            return settled
        held = dict(weights)
        observation = settled.transmit(held, seed=seed)
        return _Arrived(observation, noise_by_tensor(observation.noise_variance, held))


@dataclass(frozen=True)
class _Arrived:
    """All that arrived through a channel that needs all tensors at once, to be handed out one by one."""

    observation: Observation[dict[str, Tensor], NoiseVariance]
    noise: Mapping[str, TensorNoise] | None

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What arrived of these weights; the seed was given before."""
        sent = self.observation
        noise = sent.noise_variance if self.noise is None else {name: self.noise[name] for name in weights}
        return replace(sent, received={name: sent.received[name] for name in weights}, noise_variance=noise)


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
