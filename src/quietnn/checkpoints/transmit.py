"""Send a checkpoint through the Gaussian channel from file to file."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from quietnn.channels.awgn import AWGN, Power, add_noise_in_place
from quietnn.channels.randomness import check_seed
from quietnn.checkpoints.base import Change, moments_of
from quietnn.checkpoints.finite import kept_finite, largest_magnitude
from quietnn.checkpoints.opening import as_path, open_to_rewrite
from quietnn.checkpoints.recorded import check_new_noise
from quietnn.checkpoints.selection import Selection, ignore_selection
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import check_is
from quietnn.moments import WeightStatistics

_MOST_STD = 10.0
"""Noise drawn in float32 is never further from zero than this many standard deviations."""


def transmit_checkpoint(
    source: Path,
    out: Path,
    *,
    channel: AWGN,
    seed: int,
    noisy: Sequence[str] = (),
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    streaming: Streaming | None = None,
    on_selection: Callable[[Selection], None] = ignore_selection,
) -> float:
    """Write a noisy copy and return the noise variance `sigma_z^2`; the truth is recorded in its metadata.

    The result is that of `quietnn.transmit` to the last bit: noise depends on seed, tensor name and place alone.

    Args:
        source: a safetensors file, a folder in Hugging Face layout, or a `.pt` file of tensors.
        out: where to write; of the same kind.
        channel: the noise, by WNR or variance.
        seed: which noise.
        noisy: patterns of the noisy tensors' names, instead of the rule.
        exclude: patterns of names to leave alone.
        overwrite: replace an output that is there.
        streaming: threads and chunks.
        on_selection: told which tensors are noisy, before anything is written.

    >>> import tempfile, torch
    >>> from safetensors.torch import save_file
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_file({"layer.weight": torch.randn(64, 64)}, folder / "clean.safetensors")
    >>> transmit_checkpoint(
    ...     folder / "clean.safetensors", folder / "noisy.safetensors", channel=AWGN(noise_variance=0.5), seed=0
    ... )
    0.5
    """
    streaming = streaming or Streaming()
    check_seed(seed)
    source, out = as_path(source, "source"), as_path(out, "out")
    check_is(channel, AWGN, "channel", "give channel=AWGN(wnr_db=6); other channels go by file on the command line")
    checkpoint, selection, names = open_to_rewrite(
        source, out, noisy=noisy, exclude=exclude, overwrite=overwrite, on_selection=on_selection
    )
    check_new_noise(checkpoint.history, selection.noisy, seed)
    moments = moments_of(checkpoint, names, streaming)
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
        "tensors": selection.noisy,
    }
    changes = {
        name: _change(name, checkpoint.noise_name(name), variance**0.5, seed, largest_magnitude(moments[name]))
        for name in names
    }
    checkpoint.write(out, changes, step, streaming, overwrite=overwrite)
    return variance


def _change(name: str, noise_name: str, std: float, seed: int, largest: float) -> Change:
    def change(values: Tensor, start: int) -> None:
        add_noise_in_place(values, std, seed=seed, name=noise_name, start=start)

    return kept_finite(name, change, factor=std, reach=largest + _MOST_STD * std)
