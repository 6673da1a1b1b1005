"""Train a named task from its own data and put the weights where `load_task` finds them."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.files import replacing_folder
from quietnn.tasks.cifar10 import load_cifar10
from quietnn.tasks.cifar10_task import CIFAR10, METADATA_KEY, InputNormalisation, parse_normalisation, weights_path
from quietnn.tasks.digits import RECIPE, train_digits
from quietnn.tasks.fit import Progress, Run, forget_states
from quietnn.tasks.growing import grow_resnet
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.models.resnet import ResNet, ThinResNet
from quietnn.tasks.registry import split_name
from quietnn.tasks.sst2 import find_encoder, load_classifier, load_sst2, tokenise
from quietnn.tasks.training import EncoderRecipe, ImageRecipe, finetune_encoder, train_classifier
from quietnn.tasks.transformers_folder import load_tokenizer
from quietnn.tasks.weights_file import load_weights, write_weights

Start = tuple[nn.Module, InputNormalisation, dict[str, str]]
"""What a run begins with: first weights, what they expect of inputs, and what their file should say of its origin."""

PROGRESSIVE = ((16, 0.5), (24, 0.8))
"""The small images of the default CIFAR-10 recipe: the run takes about half of the time it would at full size."""

GROWN = ImageRecipe(num_epochs=8, peak_lr=0.08, warmup=0.2, label_smoothing=0.0, small_images=((16, 0.5), (24, 0.75)))
"""How a grown network is trained on: four epochs at 16x16, two at 24x24, two at 32x32."""


def default_recipe(name: str, *, grow_from: str | None = None) -> ImageRecipe | EncoderRecipe:
    """The recipe that a named task is trained with unless told otherwise.

    >>> default_recipe("sst2/minilm").num_epochs
    3
    """
    family, _ = split_name(name)
    if grow_from is not None:
        return GROWN
    recipes: dict[str, ImageRecipe | EncoderRecipe] = {
        "digits": RECIPE,
        "cifar10": ImageRecipe(small_images=PROGRESSIVE),
        "sst2": EncoderRecipe(),
    }
    return recipes[family]


def default_target(name: str, data_dir: Path) -> Path:
    """Where the weights of a trained task go."""
    family, member = split_name(name)
    if family == "cifar10":
        return weights_path(member, data_dir)
    return data_dir / f"sst2-{Path(member).name}" if family == "sst2" else data_dir / "weights" / "digits.safetensors"


def train_task(
    name: str,
    *,
    data_dir: Path,
    recipe: ImageRecipe | EncoderRecipe,
    out: Path | None = None,
    grow_from: str | None = None,
    run_dir: Path | None = None,
    resume: bool = True,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Train `digits`, `cifar10/<network>` or `sst2/<encoder>` and write the weights; called again, it resumes.

    Weights go to `out`, default `default_target`: a file, for `sst2` a folder in transformers layout. If they are there
    already and may not be replaced, that is refused before any training. Checkpoints go to `run_dir`, default
    `runs/train-<task>` in `data_dir`. `grow_from` begins with the weights of a shallower network, such as `resnet18`
    for `cifar10/resnet34`.
    """
    family, member = split_name(name)
    target = out or default_target(name, data_dir)
    if target.exists() and not overwrite:
        raise InvalidConfig(f"{target} is there already; give another --out, or replace it with --overwrite")
    if grow_from is not None and family != "cifar10":
        raise InvalidConfig(
            f"{name} cannot grow out of {grow_from!r}; only residual networks of cifar10 can, leave --grow-from out"
        )
    run_dir = run_dir or _default_run_dir(family, member, data_dir, recipe)
    run = Run(run_dir, resume, on_progress)
    described = {"task": name, "recipe": json.dumps(asdict(recipe))}
    if isinstance(recipe, EncoderRecipe):
        _train_sst2(member, data_dir, recipe, run, target)
    elif family == "cifar10":
        start = _fresh(member, recipe.seed) if grow_from is None else grown(member, grow_from, data_dir, recipe.seed)
        model, prepare, origin = start
        images, labels = load_cifar10(data_dir, "train")
        weights = train_classifier(model, images, labels, recipe=recipe, prepare=prepare, run=run)
        write_weights(target, weights, metadata={**described, **origin})
    else:
        write_weights(target, train_digits(run, recipe=recipe), metadata=described)
    forget_states(run_dir)  # nothing is left to resume, and another recipe may follow
    return target


def _default_run_dir(family: str, member: str, data_dir: Path, recipe: ImageRecipe | EncoderRecipe) -> Path:
    run_dir = data_dir / "runs" / f"train-{family}-{Path(member).name}".rstrip("-")
    if isinstance(recipe, ImageRecipe) and recipe.weight_noise_db is not None:
        return run_dir.with_name(f"{run_dir.name}-noise{recipe.weight_noise_db:g}dB")
    if isinstance(recipe, ImageRecipe) and recipe.weight_noise_share is not None:
        return run_dir.with_name(f"{run_dir.name}-noise{recipe.weight_noise_share:g}")
    return run_dir


def _fresh(architecture: str, seed: int) -> Start:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = IMAGE_MODELS[architecture]()
    return model, CIFAR10, {METADATA_KEY: str(CIFAR10)}


def grown(architecture: str, source: str, data_dir: Path, seed: int) -> Start:
    """A deeper network, such as `resnet34`, out of a trained `source`, `resnet18`, with its input normalisation."""
    if source not in IMAGE_MODELS:
        raise InvalidConfig(f"there is no network {source!r} to grow from; use --grow-from resnet18")
    deep, _, _ = _fresh(architecture, seed)
    shallow = IMAGE_MODELS[source]()
    if not isinstance(deep, ResNet | ThinResNet) or type(deep) is not type(shallow):
        raise InvalidConfig(
            f"{architecture} cannot grow out of {source}; grow resnet34 out of resnet18, or resnet32 out of resnet20"
        )
    normalisation = parse_normalisation(load_weights(shallow, weights_path(source, data_dir)).get(METADATA_KEY, "none"))
    added = grow_resnet(shallow, deep, seed=seed)
    origin = {METADATA_KEY: str(normalisation), "grown_from": source, "added_blocks": ",".join(added)}
    return deep, normalisation, origin


def _train_sst2(encoder: str, data_dir: Path, recipe: EncoderRecipe, run: Run, target: Path) -> None:
    source = find_encoder(encoder, data_dir=data_dir)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)  # the new head's first weights
        model = load_classifier(source, new_head=True)
    finetune_encoder(model, tokenise(*load_sst2(data_dir, "train"), source), recipe=recipe, run=run)
    with replacing_folder(target) as partial:
        model.save_pretrained(partial)  # type: ignore[operator]
        load_tokenizer(source, "SST-2").save_pretrained(partial)
        (partial / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n")
