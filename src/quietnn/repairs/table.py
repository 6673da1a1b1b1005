"""The rows of `REPAIRS`, from the simplest to the most elaborate: fewer numbers taken from the data come first."""

import copy
from collections.abc import Callable
from typing import Any

from quietnn.evidence import Evidence
from quietnn.methods import METHODS
from quietnn.observation import Observation
from quietnn.repairs.affine import MMSE
from quietnn.repairs.auto import auto
from quietnn.repairs.base import Repair, Repaired, Rule, Run, always, register
from quietnn.repairs.batchnorm.calibrate import calibrate, calibrate_structured, mmse_calibrated, re_estimate
from quietnn.repairs.batchnorm.matched import match
from quietnn.repairs.beside.where import RANK, SMALL
from quietnn.repairs.branches import denoise_branches
from quietnn.repairs.directions import denoise_directions
from quietnn.repairs.energy import restore_energy
from quietnn.repairs.entropy import EATA, SAR, TENT, adapt
from quietnn.repairs.finetuning import PULL, finetune
from quietnn.repairs.fitting.whitened import PosteriorSettings
from quietnn.repairs.grouped import denoised
from quietnn.repairs.kinds import (
    has_kernels,
    has_stored_statistics,
    is_network,
    normalises_inputs,
    stores_no_statistics,
)
from quietnn.repairs.peers import adapt_statistics, t3a
from quietnn.repairs.posterior import posterior
from quietnn.repairs.self_training import self_train
from quietnn.repairs.temperatures.tune import Search, mmse_pb, mmse_pb_gradient, mmse_pb_layerwise


def _ml(observation: Observation[Any, Any], evidence: Evidence, seed: int, settings: None) -> Repaired:
    """What arrived, as it arrived."""
    arrived = (observation.as_received or observation).received
    return Repaired(copy.deepcopy(arrived), "ml")


def _mmse(groups: str, name: str) -> Run:
    def run(observation: Observation[Any, Any], evidence: Evidence, seed: int, settings: Search) -> Repaired:
        return Repaired(denoised(observation, MMSE, groups, form=settings.form), name)

    return run


def _mmse_at_mean_noise(observation: Observation[Any, Any], evidence: Evidence, seed: int, settings: None) -> Repaired:
    """MMSE that takes every weight's noise for the mean one; the same as MMSE where all weights have the same."""
    return Repaired(denoised(observation.with_noise(observation.mean_noise_variance), MMSE), "mmse_at_mean_noise")


def _run(repair: Callable[..., Repaired], *takes: str, **options: Any) -> Run:
    """A repair that takes the seed, or the settings by one of their names, beside observation and evidence."""

    def run(observation: Observation[Any, Any], evidence: Evidence, seed: int, settings: Any, **where: Any) -> Repaired:
        known = {"seed": seed, "settings": settings, "search": settings}
        return repair(observation, evidence, **{name: known[name] for name in takes}, **options | where)

    return run


def _unlabelled(observation: Observation[Any, Any], evidence: Evidence, seed: int, settings: None) -> Repaired:
    return auto(observation, evidence.without_labels(), seed=seed)


def _kind(holds: Callable[[Any], bool]) -> Rule:
    """A question about the kind of network that arrived."""
    return lambda observation: holds(observation.received)


_NETWORK = _kind(is_network)
_BATCH_NORM = _kind(has_stored_statistics)
_KERNELS = _kind(has_kernels)
_STATELESS = _kind(stores_no_statistics)


def _each_input(observation: Observation[Any, Any]) -> bool:
    """Whether layers normalise each input, those that the user named included."""
    return normalises_inputs(observation.received, observation.normalisation)


def _is_noise(observation: Observation[Any, Any]) -> bool:
    """Whether what came with the weights is noise as far as is known: rounding follows them, and no prior undoes it."""
    return not observation.rounded


def _row(name: str, run: Run, **columns: Any) -> None:
    register(Repair(METHODS[name], run, **columns))


_SEARCH, _FIT = Search(), PosteriorSettings()

_row("ml", _ml, by_auto=always)
_row("mmse", _mmse("whole", "mmse"), by_auto=always, behind="posterior", settings=_SEARCH)
_row("mmse_at_mean_noise", _mmse_at_mean_noise)
_row("mmse_layerwise", _mmse("layerwise", "mmse_layerwise"), by_auto=always, behind="posterior", settings=_SEARCH)
_row("re_estimated", _run(re_estimate), applies=_BATCH_NORM)
_row("adapted_statistics", _run(adapt_statistics), applies=_BATCH_NORM)
_row("t3a", _run(t3a), applies=_NETWORK)
_row("tent", _run(adapt, settings=TENT, name="tent"), applies=_NETWORK)
_row("eata", _run(adapt, settings=EATA, name="eata"), applies=_NETWORK)
_row("sar", _run(adapt, settings=SAR, name="sar"), applies=_NETWORK)
_row("branches", _run(denoise_branches), applies=_each_input, by_auto=always)
_row("branches_balanced", _run(denoise_branches, balanced_classes=True), applies=_each_input)
_row("directions", _run(denoise_directions), applies=_each_input, by_auto=always)
_row("energy", _run(restore_energy), applies=_each_input, by_auto=always, unjudged=always)
_row("energy_balanced", _run(restore_energy, balanced_classes=True), applies=_each_input, unjudged=always)
_row("mmse_calibrated", _run(mmse_calibrated), applies=_BATCH_NORM)
_row("calibrated", _run(calibrate), applies=_BATCH_NORM, by_auto=always, unjudged=always)
_row("calibrated_balanced", _run(calibrate, balanced_classes=True), applies=_BATCH_NORM)
_row("structured", _run(calibrate_structured), applies=_KERNELS, by_auto=always, unjudged=_is_noise)
_row(
    "self_trained",
    _run(self_train, "settings", "seed"),
    applies=_NETWORK,
    unjudged=_BATCH_NORM,
    settings=_FIT,
    fits_beside=True,
)
_row("mmse_p", _run(mmse_pb, "search", "seed", with_beta=False), applies=_NETWORK, by_score=True, settings=_SEARCH)
_AFFINE = {"applies": _NETWORK, "behind": "posterior", "settings": _SEARCH}
_row("mmse_pb", _run(mmse_pb, "search", "seed"), by_auto=always, by_score=True, **_AFFINE)
_row("mmse_pb_layerwise", _run(mmse_pb_layerwise, "search", "seed"), applies=_NETWORK, by_score=True, settings=_SEARCH)
_row("mmse_pb_gradient", _run(mmse_pb_gradient, "search", "seed"), by_auto=_STATELESS, **_AFFINE)
_row("finetuned", _run(finetune, "seed"), applies=_NETWORK)
_row("lora", _run(finetune, "seed", rank=RANK), applies=_NETWORK)
_row("finetuned_started", _run(finetune, "seed", start="repaired"), applies=_NETWORK)
_row("lora_started", _run(finetune, "seed", rank=RANK, start="repaired"), applies=_NETWORK)
_row("l2_sp", _run(finetune, "seed", start="repaired", pull=PULL), applies=_NETWORK)
_FITTED = {"applies": _NETWORK, "settings": _FIT, "judges_itself": True, "fits_beside": True}
_row("posterior", _run(posterior, "settings", "seed"), by_auto=always, **_FITTED)
_row("posterior_adapter", _run(posterior, "settings", "seed", trainable="adapter"), **_FITTED)
_row("posterior_digital", _run(posterior, "settings", "seed", trainable="digital"), **_FITTED)
_row("matched", _run(match), applies=_BATCH_NORM, fits_beside=True)
_row("matched_adapter", _run(match, trainable="adapter", budget=SMALL), applies=_BATCH_NORM, fits_beside=True)
_row("auto", _run(auto, "seed"), applies=_NETWORK)
_row("auto_unlabelled", _unlabelled, applies=_NETWORK)
