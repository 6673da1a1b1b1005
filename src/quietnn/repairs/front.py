"""The front door: one call for every repair."""

from numbers import Real
from typing import Any

from torch import nn

from quietnn.channels.randomness import check_seed
from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import Evidence
from quietnn.losses import Losses
from quietnn.noise import NoiseVariance
from quietnn.observation import observe
from quietnn.repairs.auto import MAX_PASSES
from quietnn.repairs.auto import auto as _auto
from quietnn.repairs.base import REPAIRS, Repaired
from quietnn.repairs.beside.where import Where
from quietnn.score import ScoreFunction
from quietnn.variants import Variants


def repair(
    what: object,
    inputs: object = None,
    labels: object = None,
    *,
    method: str = "auto",
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    loss: Losses | None = None,
    score: ScoreFunction | None = None,
    higher_is_better: bool = True,
    augment: Variants = None,
    teacher: nn.Module | None = None,
    balanced_classes: bool = False,
    max_passes: float = MAX_PASSES,
    trainable: str = "weights",
    rank: int | None = None,
    budget: float | None = None,
    settings: object = None,
    seed: int = 0,
) -> Repaired:
    """Repair a noisy network with the evidence at hand: nothing, inputs, or inputs with labels.

    Args:
        what: what arrived: an `Observation`, or a module, a state dict or a tensor with `noise_variance` or `wnr_db`.
            It stays as it is.
        inputs: about a hundred inputs of the kind the network is for: a tensor, an array, a dict of them passed by
            keyword, a `Dataset`, a `DataLoader`, a list of batches, or an `Evidence`.
        labels: class numbers, or what else `loss` compares outputs with.
        method: a row of `REPAIRS`; `"auto"` picks one.
        noise_variance: `sigma_z^2`, one number, or by tensor or layer name. If neither this nor `wnr_db` is given and
            the observation does not hold it, `auto` estimates it from BatchNorm and the inputs.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        loss: a function of `(outputs, labels)` that returns one loss per example; by default cross-entropy.
        score: a function from a network to a number, by which temperatures are searched in place of accuracy and loss.
        higher_is_better: False if a lower `score` is better.
        augment: random variants of the inputs that keep their labels, such as crops and flips; `False` for none. By
            default the posterior shifts images by a few pixels where that does no harm.
        teacher: the clean network, if you have it, in place of labels: its outputs on the inputs are compared.
        balanced_classes: True if all classes are about equally common among inputs without labels.
        max_passes: the most that `auto` may cost, in forward passes over the examples.
        trainable: what may change. `"weights"`: all of them. Where they cannot be rewritten, as on an analog chip,
            `"digital"`: normalisation, biases and a factor for each output; or `"adapter"`: all this, and a low-rank
            addition beside each matrix. Then `repaired.beside` has what to add.
        rank: of the additions; 8, or less in a small network, when not given.
        budget: in place of a rank, the share of the network's parameters that may stand beside it: `budget=0.02`.
        settings: of the method, if it has any (`PosteriorSettings`, `Search`).
        seed: of splits, orders and augmentation.

    Returns:
        A repaired copy of the network, with the method's name, its passes and its details.

    Raises:
        QuietnnError: if an argument does not fit. The message shows a call that works.

    >>> import torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    >>> repair(network, torch.rand(20, 4), wnr_db=6.0).name
    'calibrated'
    """
    check_seed(seed)
    if method == "auto":
        check_is(max_passes, Real, "max_passes", "give a number of passes: max_passes=200")
    elif balanced_classes or max_passes != MAX_PASSES:
        option = "balanced_classes" if balanced_classes else "max_passes"
        raise InvalidConfig(f"{option} is for auto, and method is {method!r}; leave one of them out")
    if score is None and not higher_is_better:
        raise InvalidConfig("higher_is_better is for a score; give one, repair(model, score=f, ...), or leave it out")
    if score is not None and method != "auto" and not REPAIRS[method].by_score:
        raise InvalidConfig(
            f"{method} goes by the loss and not by a score; give loss=..., or search by the score: method='mmse_pb'"
        )
    where = Where(trainable, rank, budget)
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    if where.weights_stay:
        where.check(observation.received, observation.weights)
    direction = None if higher_is_better else False
    evidence = Evidence.of(
        inputs, labels, loss=loss, score=score, higher_is_better=direction, augment=augment, teacher=teacher
    )
    if method == "auto":
        if settings is not None:
            raise InvalidConfig(
                f"auto takes no settings; name the method that {type(settings).__name__} is for: method='posterior'"
            )
        if score is not None and not evidence.has_labels:
            raise InvalidConfig(
                "auto judges by labels, and there is a score alone; name a method that goes by it: "
                "repair(model, method='mmse_pb', score=...)"
            )
        if balanced_classes and evidence.has_labels:
            raise InvalidConfig("balanced_classes stands in for labels, and labels were given; leave one of them out")
        return _auto(
            observation, evidence, balanced_classes=balanced_classes, max_passes=max_passes, seed=seed, where=where
        )
    return REPAIRS[method](observation, evidence, seed=seed, settings=settings, where=where)


def auto(what: object, inputs: object = None, labels: object = None, **more: Any) -> Repaired:
    """`repair(method="auto")`, which takes the same arguments.

    >>> import torch
    >>> auto(torch.nn.Linear(4, 2), noise_variance=0.01).name
    'ml'
    """
    return repair(what, inputs, labels, method="auto", **more)
