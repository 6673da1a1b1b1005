"""Image networks learn and encoders are fine-tuned; what cannot work is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.tasks.coloured_images import RECIPE, coloured_images, prepare, tiny_network
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.tasks.base import Examples, evaluate_classifier
from quietnn.tasks.fit import Progress, Run
from quietnn.tasks.sst2 import load_classifier, load_sst2, tokenise
from quietnn.tasks.training import EncoderRecipe, ImageRecipe, finetune_encoder, train_classifier


def train(run_dir: Path, recipe: ImageRecipe = RECIPE) -> dict[str, Tensor]:
    images, labels = coloured_images()
    return train_classifier(tiny_network(), images, labels, recipe=recipe, prepare=prepare, run=Run(run_dir))


def test_it_learns(tmp_path: Path) -> None:
    images, labels = coloured_images()
    model = tiny_network()
    recipe = replace(RECIPE, num_epochs=12)
    model.load_state_dict(train_classifier(model, images, labels, recipe=recipe, prepare=prepare, run=Run(tmp_path)))
    assert evaluate_classifier(model, Examples(prepare(images), labels)).accuracy > 0.9


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    first, other = train(tmp_path / "a"), train(tmp_path / "b", recipe=replace(RECIPE, seed=1))
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_impossible_recipes() -> None:
    with pytest.raises(InvalidConfig, match="num_epochs is 0"):
        ImageRecipe(num_epochs=0)
    with pytest.raises(InvalidConfig, match="warmup is 1"):
        ImageRecipe(warmup=1.0)
    with pytest.raises(InvalidConfig, match=r"weight_noise_db is 6 and weight_noise_share 0\.04; .*leave one out"):
        ImageRecipe(weight_noise_db=6.0, weight_noise_share=0.04)
    with pytest.raises(InvalidConfig, match="weight_clip is -1"):
        ImageRecipe(weight_clip=-1.0)


def test_clipped_weights_end_within_their_limit_and_noise_changes_what_is_learnt(tmp_path: Path) -> None:
    limits = {}
    for name, recipe in {"free": RECIPE, "clipped": replace(RECIPE, weight_noise_share=0.05, weight_clip=1.5)}.items():
        weight = train(tmp_path / name, recipe=recipe)["0.weight"]
        limits[name] = float(weight.abs().max() / weight.std())
    assert limits["clipped"] < 1.75 < limits["free"], "clipping at 1.5 leaves a smaller spread, of which it is more"


def test_a_batch_larger_than_the_data(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="lower --batch-size"):
        train(tmp_path, recipe=replace(RECIPE, batch_size=71))


def test_a_killed_fine_tuning_resumes_to_the_same_weights(sst2_dir: Path) -> None:
    recipe = EncoderRecipe(num_epochs=3, batch_size=4, peak_lr=5e-3)
    examples = tokenise(*load_sst2(sst2_dir, "train"), sst2_dir / "tiny")

    def run(name: str, stop_at: tuple[int, int] | None = None) -> dict[str, torch.Tensor]:
        def stop(progress: Progress) -> None:
            if (progress.epoch, progress.step) == stop_at:
                raise KeyboardInterrupt

        torch.manual_seed(1)
        model = load_classifier(sst2_dir / "tiny", new_head=True)
        return finetune_encoder(model, examples, recipe=recipe, run=Run(sst2_dir / name, on_progress=stop))

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("killed", stop_at=(1, 3))
    resumed = run("killed")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
