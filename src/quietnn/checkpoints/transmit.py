"""Send a checkpoint from file to file, through the Gaussian channel or any other."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock

from torch import Tensor
from typing_extensions import Unpack

from quietnn.channels.awgn import AWGN, Power, add_noise_in_place
from quietnn.channels.base import Channel, is_by_tensor, settle
from quietnn.channels.randomness import check_seed
from quietnn.checkpoints.changes import Change, kept_finite, largest_magnitude
from quietnn.checkpoints.history import check_new_noise
from quietnn.checkpoints.inspect import moments_of
from quietnn.checkpoints.opening import Checkpoint, RewriteOptions, Rewriting
from quietnn.checkpoints.workers import Room, Streaming, give_back, run
from quietnn.errors import check_is
from quietnn.moments import Moments, WeightStatistics, block_moments, one_torch_thread
from quietnn.noise import NoiseVariance, mean_of, noise_by_tensor, one_variance
from quietnn.observation import Observation, of_tensor
from quietnn.units import ratio_to_db
from quietnn.weights import Weights, check_weights

_MOST_STD = 10.0
"""Noise drawn in float32 is never further from zero than this many standard deviations."""

_Arrived = Observation[dict[str, Tensor], NoiseVariance]


def transmit_checkpoint(
    source: Path, out: Path, *, channel: AWGN, seed: int, **options: Unpack[RewriteOptions]
) -> float:
    """Write a noisy copy and return the noise variance `sigma_z^2`, which is also recorded in the copy's metadata.

    The result is that of `quietnn.transmit` to the last bit: noise depends on seed, tensor name and place alone.

    Args:
        source: a safetensors file, a folder in Hugging Face layout, or a `.pt` file of tensors.
        out: where to write; of the same kind.
        channel: the noise, by WNR or variance.
        seed: which noise.
        options: `noisy`, `exclude`, `overwrite`, `streaming` and `on_selection`, see `RewriteOptions`.

    >>> import tempfile, torch
    >>> from safetensors.torch import save_file
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_file({"layer.weight": torch.randn(64, 64)}, folder / "clean.safetensors")
    >>> transmit_checkpoint(
    ...     folder / "clean.safetensors", folder / "noisy.safetensors", channel=AWGN(noise_variance=0.5), seed=0
    ... )
    0.5
    """
    check_is(channel, AWGN, "channel", "give channel=AWGN(wnr_db=6); other channels go by file on the command line")
    rewriting = _opened(source, out, seed, **options)
    checkpoint = rewriting.checkpoint
    moments = moments_of(checkpoint, rewriting.names, rewriting.streaming)
    statistics = WeightStatistics.from_moments(list(moments.values()))
    variance = channel.variance_at(statistics)
    step = {
        "verb": "transmit",
        "noise_variance": variance,
        "wnr_db": channel.wnr_db,
        "power": Power(channel.power).value,
        "seed": seed,
        "weight_mean": statistics.mean,
        "weight_variance": statistics.variance,
        "num_weights": statistics.num_weights,
    }
    std = variance**0.5
    changes = {
        name: kept_finite(
            name,
            _noise_on(checkpoint.noise_name(name), std, seed),
            factor=std,
            reach=largest_magnitude(moments[name]) + _MOST_STD * std,
        )
        for name in rewriting.names
    }
    rewriting.write(changes, step)
    return variance


def transmit_checkpoint_through(
    source: Path, out: Path, *, channel: Channel, description: str, seed: int, **options: Unpack[RewriteOptions]
) -> float:
    """Write what any channel makes of a checkpoint and return the effective WNR in dB.

    The result is that of `quietnn.transmit` to the last bit. Channels need whole tensors, but only some at a time: what
    one must know of all of them (their power, what bits they cost) it settles first, reading one after the other.
    Memory is that of the largest tensor. A channel of your own that neither treats tensors by themselves (`by_tensor`)
    nor settles (`quietnn.channels.base.settle`) gets all of them at once, and they are held, as they arrived, until
    they are written. The mean noise variance, the gain and the offset of every tensor are recorded in the output's
    metadata.
    So is `description`, how the channel was asked for. All else is as in `transmit_checkpoint`.
    """
    rewriting = _opened(source, out, seed, **options)
    checkpoint, names, streaming = rewriting.checkpoint, rewriting.names, rewriting.streaming
    weights = OnDisk(checkpoint, names, on_progress=streaming.on_progress)
    sending = _Sending(checkpoint, names, _sender(channel, weights, seed))
    told = sending.look(streaming)
    wnr_db = _effective_wnr_db(list(told.values()))
    step = {
        "verb": "transmit",
        "channel": description,
        "seed": seed,
        "wnr_db": wnr_db if math.isfinite(wnr_db) else None,
        "noise_variance_by_tensor": {name: told[name].noise_variance for name in names},
        "gain_by_tensor": {name: told[name].gain for name in names},
        "offset_by_tensor": {name: told[name].offset for name in names},
    }
    rewriting.write({name: _arriving(partial(sending.receive, name)) for name in names}, step)
    return wnr_db


def _opened(source: Path, out: Path, seed: int, **options: Unpack[RewriteOptions]) -> Rewriting:
    """A checkpoint to send, none of whose noisy tensors met the noise of this seed before."""
    check_seed(seed)
    rewriting = Rewriting.open(source, out, **options)
    check_new_noise(rewriting.checkpoint.history, rewriting.selection.noisy, seed)
    return rewriting


def _noise_on(noise_name: str, std: float, seed: int) -> Change:
    def change(values: Tensor, start: int) -> None:
        add_noise_in_place(values, std, seed=seed, name=noise_name, start=start)

    return change


class OnDisk(Mapping[str, Tensor]):
    """Tensors by the names that key their noise, each read when it is asked for and forgotten with whoever asked."""

    def __init__(self, checkpoint: Checkpoint, names: Sequence[str], *, on_progress: Callable[[int], None]) -> None:
        self._checkpoint, self._on_progress = checkpoint, on_progress
        self._names = {checkpoint.noise_name(name): name for name in names}

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._checkpoint.read(self._names[name])
        give_back(tensor.numel())  # what the one before it left
        self._on_progress(tensor.nbytes)
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._names  # the one of Mapping would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class _Told:
    """What the channel tells of a tensor, and the moments that it had."""

    noise_variance: float
    gain: float
    offset: float
    moments: Moments


def _effective_wnr_db(told: Sequence[_Told]) -> float:
    """That of the whole model, as `effective_wnr_db` has it."""
    sizes = [float(one.moments[0].sum()) for one in told]
    total = math.fsum(one.noise_variance * size for one, size in zip(told, sizes, strict=True))
    variance = WeightStatistics.from_moments([one.moments for one in told]).variance
    return ratio_to_db(variance * math.fsum(sizes) / total) if total else math.inf


class _Sending:
    """Sends each tensor by itself: once for what the channel tells of it, and once more when it is written.

    The channel knows a tensor by the name that keys its noise, which may not be the one in the file.
    """

    def __init__(self, checkpoint: Checkpoint, names: Sequence[str], send: Callable[[str, Tensor], _Arrived]) -> None:
        self._checkpoint, self._send = checkpoint, send
        self._sizes = {name: math.prod(checkpoint.shapes[name]) for name in names}
        self._room = Room(max(self._sizes.values()))

    def look(self, streaming: Streaming) -> dict[str, _Told]:
        """What the channel tells of all tensors, of several at a time where there is room."""
        told: dict[str, _Told] = {}

        def work(name: str, _: Tensor) -> None:
            with self._room.taken(self._sizes[name]):
                tensor, key = self._checkpoint.read(name), self._checkpoint.noise_name(name)
                arrived = self._send(key, tensor)
                check_weights({name: arrived.received[key]})
                noise = noise_by_tensor(arrived.noise_variance, {key: tensor})
                mean = one_variance(arrived.noise_variance) if noise is None else mean_of(noise[key])
                gain, offset = of_tensor(arrived.gain, key), of_tensor(arrived.offset, key)
                told[name] = _Told(mean, gain, offset, block_moments(tensor))
            streaming.on_progress(tensor.nbytes)

        run(self._sizes, work, streaming.readers, chunk_values=0)
        return told

    def receive(self, name: str) -> Tensor:
        """What arrives of a tensor, in a row."""
        with one_torch_thread(), self._room.taken(self._sizes[name]):
            key = self._checkpoint.noise_name(name)
            return self._send(key, self._checkpoint.read(name)).received[key].reshape(-1)


def _sender(channel: Channel, weights: Weights, seed: int) -> Callable[[str, Tensor], _Arrived]:
    """What sends a tensor by itself; through a channel that cannot, all are sent here and now, and handed out."""
    with one_torch_thread():
        settled = settle(channel, weights)
        if is_by_tensor(settled):
            return lambda key, tensor: settled.transmit({key: tensor}, seed=seed)
        held = dict(weights)
        arrived = settled.transmit(held, seed=seed)
        noise = noise_by_tensor(arrived.noise_variance, held)

    def hand_out(key: str, _: Tensor) -> _Arrived:
        own = arrived.noise_variance if noise is None else {key: noise[key]}
        return replace(arrived, received={key: arrived.received[key]}, noise_variance=own)

    return hand_out


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
