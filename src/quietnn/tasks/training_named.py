"""Train a named task from its own data and put the weights where `load_task` finds them."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from quietnn.errors import InvalidConfig
from quietnn.files import replacing_folder
from quietnn.tasks.cifar10 import load_cifar10
from quietnn.tasks.cifar10_task import weights_path
from quietnn.tasks.digits import RECIPE, train_digits
from quietnn.tasks.encoders import find_encoder, load_classifier, load_tokenizer, tokenise
from quietnn.tasks.finetuning import EncoderRecipe, finetune_encoder
from quietnn.tasks.fit import Progress, ignore_progress
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.normalisation import CIFAR10, METADATA_KEY
from quietnn.tasks.registry import split_name
from quietnn.tasks.sst2 import load_sst2
from quietnn.tasks.training import ImageRecipe, train_classifier
from quietnn.tasks.training_state import forget_states
from quietnn.tasks.weights_file import write_weights

PROGRESSIVE = ((16, 0.5), (24, 0.8))
"""The small images of the default CIFAR-10 recipe: the run takes about half of the time it would at full size."""


def default_recipe(name: str) -> ImageRecipe | EncoderRecipe:
    """The recipe that a named task is trained with unless told otherwise.

    >>> default_recipe("sst2/minilm").num_epochs
    3
    """
    family, _ = split_name(name)
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
    resume: bool = True,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> Path:
    """Train a named task and write its weights; killed and called again, it resumes.

    Args:
        name: `digits`, `cifar10/<network>` or `sst2/<encoder>`.
        data_dir: holds the data; checkpoints go to `runs/` in it.
        recipe: how to train.
        out: what to write, default `default_target`.
        resume: continue what an earlier call left, else start over.
        overwrite: replace weights that are there already.
        on_progress: called after every step.

    Returns:
        The weights file; for `sst2` a folder in transformers layout.

    Raises:
        InvalidConfig: before any training, if the weights are there already and may not be replaced.
    """
    family, member = split_name(name)
    target = out or default_target(name, data_dir)
    if target.exists() and not overwrite:
        raise InvalidConfig(f"{target} is there already; give another --out, or replace it with --overwrite")
    run_dir = data_dir / "runs" / f"train-{family}-{Path(member).name}".rstrip("-")
    if isinstance(recipe, ImageRecipe) and recipe.weight_noise_db is not None:
        run_dir = run_dir.with_name(f"{run_dir.name}-noise{recipe.weight_noise_db:g}dB")
    if isinstance(recipe, EncoderRecipe):
        _train_sst2(member, data_dir, recipe, run_dir, target, resume, on_progress)
    elif family == "cifar10":
        weights = _train_cifar10(member, data_dir, recipe, run_dir, resume, on_progress)
        metadata = {METADATA_KEY: str(CIFAR10), "task": name, "recipe": json.dumps(asdict(recipe))}
        write_weights(target, weights, metadata=metadata)
    else:
        weights = train_digits(run_dir, recipe=recipe, resume=resume, on_progress=on_progress)
        write_weights(target, weights, metadata={"task": name, "recipe": json.dumps(asdict(recipe))})
    forget_states(run_dir)  # nothing is left to resume, and another recipe may follow
    return target


def _train_cifar10(
    architecture: str,
    data_dir: Path,
    recipe: ImageRecipe,
    run_dir: Path,
    resume: bool,
    on_progress: Callable[[Progress], None],
) -> dict[str, torch.Tensor]:
    data = load_cifar10(data_dir, "train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = IMAGE_MODELS[architecture]()
    return train_classifier(
        model,
        data.images,
        data.labels,
        recipe=recipe,
        prepare=CIFAR10,
        run_dir=run_dir,
        resume=resume,
        on_progress=on_progress,
    )


def _train_sst2(
    encoder: str,
    data_dir: Path,
    recipe: EncoderRecipe,
    run_dir: Path,
    target: Path,
    resume: bool,
    on_progress: Callable[[Progress], None],
) -> None:
    source = find_encoder(encoder, data_dir=data_dir)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)  # the new head's first weights
        model = load_classifier(source, new_head=True)
    examples = tokenise(load_sst2(data_dir, "train"), source)
    finetune_encoder(model, examples, recipe=recipe, run_dir=run_dir, resume=resume, on_progress=on_progress)
    with replacing_folder(target) as partial:
        model.save_pretrained(partial)  # type: ignore[operator]
        load_tokenizer(source).save_pretrained(partial)
        (partial / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n")
