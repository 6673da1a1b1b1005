"""Train a named task from its own data and put the weights where `load_task` finds them."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from quietnn.tasks.cifar10 import load_cifar10
from quietnn.tasks.cifar10_task import weights_path
from quietnn.tasks.encoders import find_encoder, load_classifier, load_tokenizer, tokenise
from quietnn.tasks.finetuning import EncoderRecipe, finetune_encoder
from quietnn.tasks.fit import Progress, ignore_progress
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.normalisation import CIFAR10, METADATA_KEY
from quietnn.tasks.sst2 import load_sst2
from quietnn.tasks.training import ImageRecipe, train_classifier
from quietnn.tasks.weights_file import write_weights


def run_folder(name: str, data_dir: Path) -> Path:
    """Where the checkpoints of a training run lie."""
    return data_dir / "runs" / f"train-{name.replace('/', '-')}"


def train_cifar10(
    architecture: str,
    *,
    data_dir: Path,
    recipe: ImageRecipe,
    out: Path | None = None,
    resume: bool = True,
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> Path:
    """Train an image network on the 50,000 training images; return the weights file."""
    data = load_cifar10(data_dir, "train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = IMAGE_MODELS[architecture]()
    weights = train_classifier(
        model,
        data.images,
        data.labels,
        recipe=recipe,
        prepare=CIFAR10,
        run_dir=run_folder(f"cifar10/{architecture}", data_dir),
        resume=resume,
        on_progress=on_progress,
    )
    path = out or weights_path(architecture, data_dir)
    metadata = {METADATA_KEY: str(CIFAR10), "task": f"cifar10/{architecture}", "recipe": json.dumps(asdict(recipe))}
    write_weights(path, weights, metadata=metadata)
    return path


def train_sst2(
    encoder: str,
    *,
    data_dir: Path,
    recipe: EncoderRecipe,
    out: Path | None = None,
    resume: bool = True,
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> Path:
    """Fine-tune an encoder on the SST-2 training rows; return the folder in transformers layout."""
    source = find_encoder(encoder, data_dir=data_dir)
    name = source.name
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)  # the new head's first weights
        model = load_classifier(source)
    finetune_encoder(
        model,
        tokenise(load_sst2(data_dir, "train"), source),
        recipe=recipe,
        run_dir=run_folder(f"sst2/{name}", data_dir),
        resume=resume,
        on_progress=on_progress,
    )
    folder = out or data_dir / f"sst2-{name}"
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)  # type: ignore[operator]
    load_tokenizer(source).save_pretrained(partial)
    (partial / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    partial.replace(folder)
    return folder
