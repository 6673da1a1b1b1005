"""Denoise a checkpoint from file to file, with what a receiver has and no more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import Unpack

from quietnn.checkpoints.changes import Change, kept_finite, largest_magnitude
from quietnn.checkpoints.history import RecordedNoise, recorded_noise
from quietnn.checkpoints.inspect import moments_of
from quietnn.checkpoints.opening import Checkpoint, RewriteOptions, Rewriting
from quietnn.checkpoints.temperatures import TunedTemperatures
from quietnn.errors import InvalidConfig
from quietnn.moments import Moments, WeightStatistics
from quietnn.noise import mean_noise
from quietnn.repairs.affine import AffineDenoiser
from quietnn.repairs.denoise import method_temperatures
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures
from quietnn.repairs.priors import priors_under, told_of
from quietnn.theory.family import Form, check_variance, noise_variance_within
from quietnn.units import db_to_ratio
from quietnn.weights import Partition, partition


@dataclass(frozen=True)
class DenoisedCheckpoint:
    """What was done: the noise, the estimated statistics of the clean weights and the map of each group."""

    noise_variance: float
    statistics: Mapping[str, WeightStatistics]
    denoisers: Mapping[str, AffineDenoiser]


def denoise_checkpoint(
    source: Path,
    out: Path,
    *,
    noise_variance: float | None = None,
    wnr_db: float | None = None,
    recorded: bool = False,
    method: str | None = None,
    lambda_prime: float | None = None,
    beta: float | None = None,
    temperatures: TunedTemperatures | None = None,
    groups: str | None = None,
    form: Form | str = Form.CENTRED,
    **options: Unpack[RewriteOptions],
) -> DenoisedCheckpoint:
    """Write the estimate of the clean weights, `w_hat = theta r + rho` for each group, in little memory.

    The result is that of `quietnn.denoise` to the last bit. Everything is checked, the weights included, before the
    first byte is written; the output then appears whole or not at all.

    Args:
        source: a safetensors file, a folder in Hugging Face layout, or a `.pt` file of tensors.
        out: where to write; of the same kind.
        noise_variance: `sigma_z^2`.
        wnr_db: the weight-to-noise ratio instead; then `sigma_z^2 = var(r) / (1 + eta)`.
        recorded: take the noise, gain, offset and noisy tensors that `quietnn transmit` recorded in the file instead.
        method: `"ml"`, `"mmse"` (the default), `"mmse_p"` or `"mmse_pb"`.
        lambda_prime: for `mmse_p` and `mmse_pb`.
        beta: for `mmse_pb`.
        temperatures: from a file, instead of a method; they bring their groups and, if not given, the noise variance.
        groups: `"whole"` (the default) or `"layerwise"`.
        form: how the prior mean enters, see `Form`.
        options: `noisy`, `exclude`, `overwrite`, `streaming` and `on_selection`, see `RewriteOptions`.

    >>> import tempfile, torch
    >>> from safetensors.torch import load_file, save_file
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_file({"layer.weight": torch.tensor([[3.0, -3.0]])}, folder / "noisy.safetensors")
    >>> done = denoise_checkpoint(folder / "noisy.safetensors", folder / "estimate.safetensors", wnr_db=0.0)
    >>> load_file(folder / "estimate.safetensors")["layer.weight"]       # theta = 1/2
    tensor([[ 1.5000, -1.5000]])
    """
    form = Form(form)
    noise_variance, groups, pairs = _settled(noise_variance, wnr_db, recorded, temperatures, groups)
    family = method_temperatures(method, lambda_prime, beta, pairs)  # refused before an hour of reading
    rewriting = Rewriting.open(source, out, recorded=recorded, **options)
    checkpoint, names = rewriting.checkpoint, rewriting.names
    chosen = _grouped(names, groups, pairs)
    noise = recorded_noise(checkpoint.history, names) if recorded else RecordedNoise(noise_variance or 0.0)
    moments = moments_of(checkpoint, names, rewriting.streaming, first=noise.undone)
    if wnr_db is not None:
        received = WeightStatistics.from_moments(list(moments.values()))
        noise = RecordedNoise(noise_variance_within(wnr_db, received.variance))
    by_group = _by_group(checkpoint, moments, chosen, noise.variance, form)
    denoisers = by_group.denoisers(family)
    changes = {
        name: _change(name, denoisers[group], noise, largest_magnitude(moments[name]))
        for group, members in chosen.items()
        for name in members
    }
    if pairs is None:
        chosen_by: dict[str, object] = {"method": method or "mmse", "lambda_prime": lambda_prime, "beta": beta}
    else:
        chosen_by = {"temperatures": {group: [pair.lambda_prime, pair.beta] for group, pair in pairs.items()}}
    step = {
        "verb": "denoise",
        "noise_variance": by_group.noise_variance,
        **chosen_by,
        "groups": groups,
        "form": form.value,
        "theta_rho": {group: [denoiser.theta, denoiser.rho] for group, denoiser in denoisers.items()},
    }
    rewriting.write(changes, step)
    return DenoisedCheckpoint(by_group.noise_variance, by_group.statistics, denoisers)


def _settled(
    noise_variance: float | None,
    wnr_db: float | None,
    recorded: bool,
    tuned: TunedTemperatures | None,
    groups: str | None,
) -> tuple[float | None, str, GroupTemperatures | None]:
    """The noise, the groups and the temperatures that the arguments mean together."""
    if tuned is not None:
        if groups is not None and groups != tuned.groups:
            raise InvalidConfig(f"groups is {groups!r}, the temperatures are for {tuned.groups!r}; leave groups out")
        if noise_variance is None and wnr_db is None and not recorded:
            noise_variance = tuned.noise_variance
    if [noise_variance is not None, wnr_db is not None, recorded].count(True) != 1:
        raise InvalidConfig(
            f"noise_variance is {noise_variance}, wnr_db {wnr_db} and recorded {recorded}; give exactly one "
            "(--noise-variance, --wnr-db or --recorded)"
        )
    if noise_variance is not None:
        check_variance(noise_variance, "noise_variance")
    if wnr_db is not None:
        db_to_ratio(wnr_db)
    if tuned is None:
        return noise_variance, "whole" if groups is None else groups, None
    return noise_variance, tuned.groups, tuned.temperatures


def _grouped(names: Sequence[str], groups: str, pairs: GroupTemperatures | None) -> Partition:
    """The groups of a file's noisy tensors; temperatures for other groups than these are refused."""
    chosen = partition(names, groups)
    wrong = sorted(set(pairs) ^ set(chosen)) if pairs is not None else []
    if wrong:
        kind = "the file has no such group" if wrong[0] not in chosen else "the temperatures do not name it"
        raise InvalidConfig(
            f"temperatures and file differ in {len(wrong)} groups, the first is {wrong[0]!r}: {kind}; "
            "tune the network that the file belongs to, or choose its noisy tensors with --noisy and --exclude"
        )
    return chosen


def _by_group(
    checkpoint: Checkpoint,
    moments: Mapping[str, Moments],
    groups: Partition,
    noise: float | Mapping[str, float],
    form: Form,
) -> GroupedWeights:
    """What the receiver knows of each group; the weights themselves stay on the disk."""
    if not isinstance(noise, Mapping):
        statistics = {
            group: WeightStatistics.from_moments([moments[name] for name in members]).without_noise(noise)
            for group, members in groups.items()
        }
        return GroupedWeights({}, noise, groups, statistics, form)
    shapes = {name: torch.empty(tuple(checkpoint.shapes[name]), device="meta") for name in moments}
    found = {name: told_of(WeightStatistics.from_moments([own]), noise[name]) for name, own in moments.items()}
    statistics, priors = priors_under(found, noise, groups)
    return GroupedWeights(shapes, mean_noise(noise, shapes), groups, statistics, form, noise, priors)


def _change(name: str, denoiser: AffineDenoiser, noise: RecordedNoise, largest: float) -> Change:
    own = denoiser.on(name)

    def change(values: Tensor, start: int) -> None:
        own(noise.undone(name, values), values)

    reach = math.inf if own is not denoiser else abs(denoiser.theta) * largest + abs(denoiser.rho)
    return kept_finite(name, change, factor=denoiser.theta, reach=reach)
