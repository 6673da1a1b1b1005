"""SST-2 with a tiny transformers classifier: load, score, fine-tune, resume."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quietnn.errors import InvalidConfig, InvalidWeights, MissingData
from quietnn.tasks.encoders import by_length, evaluate_encoder, find_classifier, lengths, load_classifier, tokenise
from quietnn.tasks.finetuning import EncoderRecipe, finetune_encoder
from quietnn.tasks.fit import Progress
from quietnn.tasks.registry import load_task
from quietnn.tasks.sst2 import Sentences, load_sst2
from quietnn.tasks.training_named import train_task

transformers = pytest.importorskip("transformers", reason="needs the [hf] extra")

GOOD, BAD = "a fine warm film", "dull"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with SST-2 in miniature and a pretrained-looking tiny encoder called `tiny`."""
    data_dir = tmp_path_factory.mktemp("data")
    (data_dir / "sst2").mkdir()
    for split, num_rows in (("train", 24), ("dev", 10), ("test", 14)):
        rows = [f"1\t{GOOD}" if number % 2 else f"0\t{BAD}" for number in range(num_rows)]
        (data_dir / "sst2" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    folder = data_dir / "tiny"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "warm", "film", "dull"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return data_dir


@pytest.fixture
def data_dir(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "data"))


RECIPE = EncoderRecipe(num_epochs=3, batch_size=4, peak_lr=5e-3)


def test_fine_tuning_makes_a_task_that_knows_its_classes(data_dir: Path) -> None:
    folder = train_task("sst2/tiny", data_dir=data_dir, recipe=replace(RECIPE, num_epochs=20))
    assert folder == data_dir / "sst2-tiny"
    task = load_task("sst2/tiny", data_dir=data_dir)
    model = task.load_model()
    assert not model.training
    score = task.evaluate(model, task.test_examples(None))
    assert (score.accuracy, score.num_examples) == (1.0, 14)
    assert len(task.test_examples(5)) == 5
    assert len(task.tuning_examples(4, 0)) == 4
    with pytest.raises(InvalidConfig, match="asked for 11 examples, there are 10"):
        task.tuning_examples(11, 0)


def test_a_killed_fine_tuning_resumes_to_the_same_weights(data_dir: Path) -> None:
    examples = tokenise(load_sst2(data_dir, "train"), data_dir / "tiny")

    def run(name: str, stop_at: tuple[int, int] | None = None) -> dict[str, torch.Tensor]:
        def stop(progress: Progress) -> None:
            if (progress.epoch, progress.step) == stop_at:
                raise KeyboardInterrupt

        torch.manual_seed(1)
        model = load_classifier(data_dir / "tiny", new_head=True)
        return finetune_encoder(model, examples, recipe=RECIPE, run_dir=data_dir / name, on_progress=stop)

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("killed", stop_at=(1, 3))
    resumed = run("killed")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_padding_does_not_change_the_score(data_dir: Path) -> None:
    examples = tokenise(Sentences((GOOD, BAD, BAD, GOOD), (1, 0, 1, 0)), data_dir / "tiny")
    torch.manual_seed(0)
    model = load_classifier(data_dir / "tiny", new_head=True)
    together, apart = (evaluate_encoder(model, examples, batch_size=size) for size in (4, 1))
    assert together.loss == pytest.approx(apart.loss, rel=1e-5)
    assert together.accuracy == apart.accuracy == 0.5
    assert lengths(by_length(examples)).tolist() == [3, 3, 6, 6]


def test_a_bare_encoder_is_no_classifier(data_dir: Path) -> None:
    with pytest.raises(MissingData, match="quietnn train sst2/tiny"):
        find_classifier("tiny", data_dir=data_dir)
    with pytest.raises(InvalidWeights, match="without a sequence classifier"):
        find_classifier("tiny", data_dir=data_dir, weights=data_dir / "tiny")


def test_a_classifier_whose_tensors_do_not_fit_names_them(data_dir: Path) -> None:
    with pytest.raises(InvalidWeights, match=r"missing: classifier.bias, classifier.weight"):
        load_classifier(data_dir / "tiny")
    (data_dir / "tiny" / "config.json").write_text("{")
    with pytest.raises(InvalidWeights, match="not a model's configuration"):
        find_classifier("tiny", data_dir=data_dir, weights=data_dir / "tiny")


def test_an_unknown_encoder_lists_the_places(data_dir: Path) -> None:
    with pytest.raises(MissingData, match=r"sst2-huge/config\.json(.|\n)*huge/config\.json"):
        load_task("sst2/huge", data_dir=data_dir)
    with pytest.raises(MissingData, match="a pretrained encoder called 'huge'"):
        train_task("sst2/huge", data_dir=data_dir, recipe=RECIPE)


def test_without_transformers_the_extra_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingData, match=r"pip install 'quietnn\[hf\]'"):
        load_classifier(data_dir / "tiny")
