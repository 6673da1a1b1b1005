"""The first mistake that a user can make in each public call is told with the call that works."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import quietnn
from quietnn import Evidence, Examples, Method, Observation, PosteriorSettings, QuietnnError, Repair, Search, Task

INPUTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(30) % 3
NOISE: dict[str, Any] = {"noise_variance": 0.01}
ROW = Method("mine", "Mine", "#000000", needs="nothing")

WITH_INPUTS = ("calibrate", "calibrate_structured", "denoise_branches", "re_estimate", "self_train")
WITH_LABELS = ("posterior", "finetune", "tune", "repair", "auto")
NO_NOISE = ("re_estimate", "finetune")
"""Verbs that do not ask for it."""


def network(verb: str = "") -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.LayerNorm(8) if verb == "denoise_branches" else nn.BatchNorm1d(8)
    return nn.Sequential(nn.Linear(4, 8), norm, nn.ReLU(), nn.Linear(8, 3)).eval()


def call(verb: str, *arguments: object, **options: Any) -> object:
    noise = {} if verb in NO_NOISE else NOISE
    return getattr(quietnn, verb)(*arguments, **{**noise, **options})


def told(message: str) -> Any:
    """Where the error has these words, as they stand."""
    return pytest.raises(QuietnnError, match=re.escape(message))


def reduced(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, labels)


def other_way_round(labels: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


@pytest.mark.parametrize("verb", ["denoise", *WITH_INPUTS, *WITH_LABELS])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        (None, "the first argument is a NoneType; give what arrived: an Observation, a module, a state dict or a"),
        ("model.pt", "load it first, or use the command line: quietnn repair FILE OUT"),
        (nn.Linear, "Linear is a class; pass a network: repair(Linear(), ...)"),
        ([1.0], "the first argument is a list; give what arrived: an Observation, a module, a state dict or a tensor"),
    ],
    ids=["nothing", "path", "class", "list"],
)
def test_what_arrived_is_of_the_wrong_kind(verb: str, what: object, message: str) -> None:
    more = () if verb == "denoise" else (INPUTS, LABELS) if verb in WITH_LABELS else (INPUTS,)
    with told(message):
        call(verb, what, *more)


@pytest.mark.parametrize("verb", ["denoise", *(verb for verb in (*WITH_INPUTS, *WITH_LABELS) if verb not in NO_NOISE)])
@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ({"noise_variance": "0.1"}, "noise_variance is a str; what arrived comes first, then a number"),
        ({"noise_variance": -1.0}, "noise_variance is -1.0; a variance must be finite and not negative"),
        ({"noise_variance": None, "wnr_db": "6"}, "a ratio in decibels is a str; give a number: wnr_db=6.0"),
    ],
    ids=["text", "negative", "decibels"],
)
def test_noise_that_is_no_number(verb: str, noise: dict[str, Any], message: str) -> None:
    more = () if verb == "denoise" else (INPUTS, LABELS) if verb in WITH_LABELS else (INPUTS,)
    with told(message):
        call(verb, network(verb), *more, **noise)


@pytest.mark.parametrize("verb", [*WITH_INPUTS, *WITH_LABELS])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (0.01, "inputs is a float, and a network is called with one tensor, or with a dict of tensors by keyword"),
        (network(), "inputs is a network; what arrived comes first: repair(model, inputs, labels)"),
        (INPUTS[:0], "there are no inputs: the first dimension is 0; give about a hundred, inputs[:100]"),
        ([], "inputs hold no batch; give about a hundred examples"),
        (INPUTS.tolist(), "torch.as_tensor(...) makes one"),
        (INPUTS.double(), "The network's weights are torch.float32. Give inputs like those that it was trained with"),
    ],
    ids=["number", "network", "empty", "empty list", "lists", "double"],
)
def test_inputs_of_the_wrong_kind(verb: str, inputs: object, message: str) -> None:
    labels = (LABELS[: len(inputs)],) if verb in WITH_LABELS and isinstance(inputs, torch.Tensor) else ()
    with told(message):
        call(verb, network(verb), inputs, *labels)


@pytest.mark.parametrize("verb", [*WITH_INPUTS, "posterior", "finetune", "tune", "noise_power_from_batch_norm"])
def test_inputs_left_out(verb: str) -> None:
    noise = {"noise_variance": None} if verb not in (*NO_NOISE, "noise_power_from_batch_norm") else {}
    with told(f"{verb} needs inputs, and they are None; call {verb}(model, inputs, ...)"):
        getattr(quietnn, verb)(network(verb), None, **noise)


@pytest.mark.parametrize("verb", WITH_LABELS)
@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (LABELS, INPUTS, "inputs come before labels: repair(model, inputs, labels)"),
        (INPUTS, LABELS.float(), "use labels.long()"),
        (INPUTS, ["a", "b", "c"] * 10, "class numbers, for example labels=torch.tensor([0, 2, 1])"),
        (INPUTS, LABELS + 5, "give labels of the classes that it was trained for"),
        (INPUTS, LABELS[:5], "give one for each"),
    ],
    ids=["swapped", "float", "text", "large", "few"],
)
def test_labels_of_the_wrong_kind(verb: str, inputs: object, labels: object, message: str) -> None:
    with told(message):
        call(verb, network(), inputs, labels)


@pytest.mark.parametrize("verb", WITH_LABELS)
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (reduced, "it must return one loss for each, for example loss=lambda outputs, labels: mse_loss(outputs"),
        (nn.CrossEntropyLoss(), "it must return one loss for each, for example"),
        (nn.CrossEntropyLoss, "loss is the class CrossEntropyLoss; give a function: loss=lambda outputs, labels: ..."),
        ("mse", "loss is a str; give a function: loss=lambda outputs, labels: ..."),
        (lambda outputs: outputs, "cannot be called with (outputs, labels)"),
        (other_way_round, "It is called as loss(outputs, labels)"),
    ],
    ids=["reduced", "module", "class", "text", "one argument", "swapped"],
)
def test_a_loss_that_cannot_be_used(verb: str, loss: object, message: str) -> None:
    with told(message):
        call(verb, network(), INPUTS, LABELS, loss=loss)


def only_inputs(mean_loss: Callable[..., object]) -> Evidence:
    return Evidence(mean_loss=mean_loss, num_examples=30)


FIRST: dict[str, tuple[Callable[[], object], str]] = {
    # what a verb takes besides
    "score": (lambda: call("tune", network(), score=0.5), "score is a float; give a function: score=lambda network"),
    "score of outputs": (
        lambda: call("tune", network(), score=lambda outputs, labels: 0.0),
        "score cannot be called with (network): missing a required argument: 'labels'; give a function",
    ),
    "score of nothing": (lambda: call("tune", network(), score=print), "return one number, score=lambda network"),
    "search": (
        lambda: call("tune", network(), INPUTS, LABELS, search="racing"),
        "search is a str; give search=quietnn.Search('racing')",
    ),
    "settings": (
        lambda: call("posterior", network(), INPUTS, LABELS, settings=0.1),
        "settings is a float; give settings=quietnn.PosteriorSettings(num_steps=32)",
    ),
    "self-training": (
        lambda: call("self_train", network(), INPUTS, settings={}),
        "settings is a dict; give settings=quietnn.PosteriorSettings(num_steps=32)",
    ),
    "learning rates": (
        lambda: call("finetune", network(), INPUTS, LABELS, learning_rates=0.1),
        "learning_rates is a float; give several to choose from: learning_rates=(1e-3, 1e-2)",
    ),
    "temperatures": (
        lambda: call("denoise", network(), temperatures=(0.5, 0.0)),
        "temperatures is a tuple; give temperatures=quietnn.Temperatures(0.5, 0.0)",
    ),
    "two numbers": (lambda: quietnn.Temperatures("0.5"), "give two numbers: Temperatures(0.5, 0.0)"),
    "grouping": (lambda: call("tune", network(), INPUTS, LABELS, groups="layer"), "choose one of whole, layerwise"),
    "max_passes": (
        lambda: call("repair", network(), INPUTS, LABELS, max_passes="200"),
        "max_passes is a str; give a number of passes: max_passes=200",
    ),
    "seed": (lambda: call("repair", network(), seed="0"), "seed is '0'; it must be a whole number"),
    "auto's alone": (
        lambda: call("repair", network(), INPUTS, method="calibrated", balanced_classes=True),
        "balanced_classes is for auto, and method is 'calibrated'; leave one of them out",
    ),
    "settings for auto": (
        lambda: call("repair", network(), INPUTS, settings=PosteriorSettings()),
        "auto takes no settings; name the method that PosteriorSettings is for: method='posterior'",
    ),
    "score for auto": (
        lambda: call("auto", network(), INPUTS, score=lambda network: 0.5),
        "repair(model, method='mmse_pb', score=...)",
    ),
    "float loss": (
        lambda: call("posterior", network(), only_inputs(lambda one, positions, generator: 0.5)),
        "the loss is a float; return the mean loss as a tensor, with its gradient",
    ),
    "loss by example": (
        lambda: call("posterior", network(), only_inputs(lambda one, positions, generator: torch.rand(len(positions)))),
        "return the mean loss of the positions, for example loss.mean()",
    ),
    # what goes in
    "observed nothing": (lambda: quietnn.observe(None), "for example repair(model, wnr_db=6)"),
    "noisy text": (lambda: quietnn.observe(network(), noisy="0.weight"), "give names of tensors: noisy=['0.weight']"),
    "normalisation": (
        lambda: quietnn.observe(network(), normalisation=nn.LayerNorm),
        "give a tuple of classes: normalisation=(Mine,)",
    ),
    "swapped observation": (lambda: Observation(0.1, network()), "for example repair(model, wnr_db=6)"),
    "noise twice": (lambda: Observation(network(), network()), "then a number: Observation(model, 1e-4)"),
    "negative noise": (lambda: Observation(network(), -1.0), "a variance must be finite and not negative"),
    "no gain": (lambda: Observation(network(), 0.1, gain=0.0), "it must be finite, and not 0: gain=1.0"),
    "offset": (lambda: Observation(network(), 0.1, offset="0"), "offset is a str; give a number"),
    "swapped evidence": (lambda: Evidence(LABELS, INPUTS), "inputs come before labels: repair(model, inputs, labels)"),
    "labels alone": (lambda: Evidence(labels=LABELS), "give both: repair(model, inputs, labels)"),
    "batch size": (lambda: Evidence(INPUTS, batch_size="32"), "a whole number, 1 or more: batch_size=100"),
    "augment": (lambda: Evidence(INPUTS, augment="flip"), "give a function: augment=lambda inputs, generator"),
    "no positions": (lambda: Evidence(mean_loss=print, num_examples=0), "num_examples=100"),
    # repairs and settings of one's own
    "function": (lambda: quietnn.register(print), "register(Repair(method, run))"),
    "name for a method": (lambda: Repair("mine", print), "Repair(Method('mine', 'Mine', '#000000'), run)"),
    "nothing to run": (lambda: Repair(ROW, None), "def run(observation, evidence, seed, settings)"),
    "steps": (lambda: PosteriorSettings(num_steps="3"), "PosteriorSettings(num_steps=8)"),
    "kind of search": (lambda: Search("race"), "did you mean 'racing'?"),
    # tasks
    "task": (lambda: quietnn.load_task(None), "load_task('digits') or load_task('package.module:function')"),
    "task's weights": (lambda: quietnn.load_task("digits", weights=network()), "weights='mine.safetensors'"),
    "lists": (lambda: Examples([[1.0]], [0]), "Examples(torch.as_tensor(inputs), torch.as_tensor(labels))"),
    "examples": (lambda: Examples(INPUTS, LABELS[:3]), "give one for each"),
    "model for a function": (lambda: Task("mine", network(), print, print), "load_model=lambda *_: ..."),
    "examples for a function": (
        lambda: Task("mine", network, Examples(INPUTS, LABELS), print),
        "tuning_examples is a Examples; give a function: tuning_examples=lambda *_: ...",
    ),
    # channels and noise
    "sent nothing": (lambda: quietnn.transmit(None, wnr_db=6, seed=0), "transmit(model, wnr_db=6, seed=0)"),
    "sent twice": (
        lambda: quietnn.transmit(Observation(network(), 0.1), wnr_db=6, seed=0),
        "of an observation, what it holds: observation.received",
    ),
    "class of channel": (
        lambda: quietnn.transmit(network(), channel=quietnn.AWGN, seed=0),
        "give one with its settings",
    ),
    "no noise": (lambda: quietnn.transmit(network(), seed=0), "for example AWGN(wnr_db=10.0)"),
    "no weights": (lambda: quietnn.transmit(nn.ReLU(), wnr_db=6, seed=0), "observe(model, noisy=['head.weight'])"),
    "decibels": (lambda: quietnn.AWGN("6"), "give a number: wnr_db=6.0"),
    "channel's name": (lambda: quietnn.channel_named(6), "for example 'quantise:num_bits=4'"),
    "names of a dict": (
        lambda: quietnn.noisy_names(network().state_dict()),
        "give noisy_names(model); of a file, inspect_checkpoint(path).selection.noisy tells them",
    ),
    "one reception": (
        lambda: quietnn.noise_power_from_receptions(network()),
        "receptions is one network; give a list of networks: noise_power_from_receptions([first, second])",
    ),
    "no reception": (lambda: quietnn.noise_power_from_receptions(None), "noise_power_from_receptions([first, second])"),
    "inputs first": (
        lambda: quietnn.noise_power_from_batch_norm(INPUTS, network()),
        "model is a Tensor; the network comes first: noise_power_from_batch_norm(model, inputs)",
    ),
    "pilots": (lambda: quietnn.noise_power_from_pilots(network(), network()), "sent={'name': values, ...}"),
}


@pytest.mark.parametrize("mistake", FIRST)
def test_a_first_mistake(mistake: str) -> None:
    make, message = FIRST[mistake]
    with told(message):
        make()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file({"layer.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


CHECKPOINTS: dict[str, Callable[..., object]] = {
    "inspect_checkpoint": lambda source, out: quietnn.inspect_checkpoint(source),
    "denoise_checkpoint": lambda source, out: quietnn.denoise_checkpoint(source, out, noise_variance=0.1),
    "transmit_checkpoint": lambda source, out: quietnn.transmit_checkpoint(
        source, out, channel=quietnn.AWGN(noise_variance=0.1), seed=0
    ),
}


@pytest.mark.parametrize("verb", CHECKPOINTS)
def test_files_of_the_wrong_kind(verb: str, file: Path) -> None:
    out = file.with_name("out.safetensors")
    with told("source is a Sequential; give the name of a file or a model folder"):
        CHECKPOINTS[verb](network(), out)
    with told("no.safetensors; give a .safetensors or .pt file, or a model folder"):
        CHECKPOINTS[verb](file.with_name("no.safetensors"), out)
    if verb != "inspect_checkpoint":
        with told("out is a NoneType; give the name of a file or a model folder"):
            CHECKPOINTS[verb](file, None)
        with told("is the input itself; write to another name"):
            CHECKPOINTS[verb](file, file)
    assert not out.exists()


@pytest.mark.parametrize("verb", CHECKPOINTS)
def test_files_may_be_given_as_text(verb: str, file: Path) -> None:
    CHECKPOINTS[verb](str(file), str(file.with_name("out.safetensors")))
    assert file.with_name("out.safetensors").exists() == (verb != "inspect_checkpoint")


def test_a_file_takes_white_noise_alone(file: Path) -> None:
    with told("channel is a str; give channel=AWGN(wnr_db=6)"):
        quietnn.transmit_checkpoint(file, file.with_name("out.safetensors"), channel="reram", seed=0)


def test_what_stands_beside_another_network() -> None:
    beside = quietnn.Beside(scales={"7.weight": torch.ones(3, 1)})
    with told("give the network as received, beside.wrap(observation.received)"):
        beside.wrap(network())


def test_every_public_call_is_here() -> None:
    """Those that only describe something are refused where they are used."""
    here = Path(__file__).read_text(encoding="utf-8")
    described = {
        "Channel",
        "Method",
        "REPAIRS",
        "Repaired",
        "Score",
        "QuietnnError",
        "AffineDenoiser",
        "WeightStatistics",
    }
    assert [name for name in quietnn.__all__ if name not in described and not re.search(rf"\b{name}\b", here)] == []
