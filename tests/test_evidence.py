"""What is known of a task, in every form that a user may have it, and what is refused with the remedy."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import quietnn
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.evidence import Evidence, labelled, some_inputs
from quietnn.score import Score, SubsetScore, as_score

CLASSES = torch.arange(60) % 3
INPUTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) + 3 * nn.functional.one_hot(CLASSES, 4)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """The first three inputs are the logits, and there is a BatchNorm to calibrate."""
    network = nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)).eval()
    with torch.no_grad():
        network[1].weight.copy_(torch.eye(3, 4))
        network[1].bias.zero_()
    return network


class Named(nn.Module):
    """Takes its inputs by keyword, as transformers do, and minds what it does not know."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, points: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"logits": self.network(points * scale)}


class Pairs(Dataset):
    """A dataset of one's own."""

    def __len__(self) -> int:
        return len(CLASSES)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return INPUTS[position], int(CLASSES[position])


def batches(size: int = 25) -> list[tuple[Tensor, Tensor]]:
    return list(zip(INPUTS.split(size), CLASSES.split(size), strict=True))


FORMS: dict[str, tuple[object, ...]] = {
    "tensors": (INPUTS, CLASSES),
    "arrays": (INPUTS.double().numpy(), CLASSES.numpy().astype("int32")),
    "labels in a list": (INPUTS, CLASSES.tolist()),
    "dataset": (Pairs(),),
    "tensor dataset": (TensorDataset(INPUTS, CLASSES),),
    "loader": (DataLoader(TensorDataset(INPUTS, CLASSES), batch_size=7),),
    "list of batches": (batches(),),
    "list of dicts": ([{"input": one, "labels": two} for one, two in batches()],),
    "dict with labels": ({"input": INPUTS.numpy(), "labels": CLASSES},),
    "evidence": (Evidence(INPUTS, CLASSES),),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_examples_in_any_form_are_judged_alike(network: nn.Module, form: str) -> None:
    expected = Evidence(INPUTS, CLASSES).judge(network)
    evidence = Evidence.of(*FORMS[form])
    assert (len(evidence), evidence.has_inputs, evidence.has_labels) == (60, True, True)
    found = evidence.judge(network)
    torch.testing.assert_close(found.losses, expected.losses)
    assert torch.equal(found.right, expected.right)
    positions = torch.tensor([5, 1, 40])
    part = evidence.take(positions)
    assert torch.equal(part.labels, CLASSES[positions])
    torch.testing.assert_close(part.judge(network).losses, expected.losses[positions])
    mean = evidence.loss_at(network, positions, None)
    assert float(mean.detach()) == pytest.approx(float(expected.losses[positions].mean()), rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_repair_takes_inputs_in_any_form(network: nn.Module, form: str) -> None:
    expected = quietnn.repair(network, INPUTS, CLASSES, noise_variance=0.05, method="mmse_pb")
    found = quietnn.repair(network, *FORMS[form], noise_variance=0.05, method="mmse_pb")
    assert found.details["temperatures"] == expected.details["temperatures"]


@pytest.mark.parametrize("form", ["tensor", "array", "tensor dataset", "loader", "list of tensors", "one-tuples"])
def test_inputs_alone_are_enough_to_calibrate(network: nn.Module, form: str) -> None:
    dataset = TensorDataset(INPUTS)
    inputs = {
        "tensor": INPUTS,
        "array": INPUTS.numpy(),
        "tensor dataset": dataset,
        "loader": DataLoader(dataset, batch_size=9),
        "list of tensors": list(INPUTS.split(20)),
        "one-tuples": [(part,) for part in INPUTS.split(20)],
    }[form]
    evidence = Evidence(inputs)
    assert not evidence.has_labels
    assert torch.equal(evidence.in_memory().inputs, INPUTS)
    with pytest.raises(InvalidConfig, match=r"no labels to judge by; give them: repair\(model, inputs, labels\)"):
        evidence.judge(network)


def test_inputs_by_keyword_in_a_dict_and_in_a_batch_encoding(network: nn.Module) -> None:
    transformers = pytest.importorskip("transformers")
    expected = Evidence(2 * INPUTS, CLASSES).judge(network).losses
    named = {"points": INPUTS, "scale": torch.full((60, 1), 2.0)}
    for inputs in (named, transformers.BatchEncoding(named)):
        torch.testing.assert_close(Evidence(inputs, CLASSES).judge(Named(network)).losses, expected)
    encoded = transformers.BatchEncoding({**named, "labels": CLASSES})
    torch.testing.assert_close(Evidence(encoded).judge(Named(network)).losses, expected)
    in_a_list = [transformers.BatchEncoding({**named, "labels": CLASSES})] * 2
    assert len(Evidence(in_a_list)) == 120


def test_a_loader_is_read_batch_by_batch_and_only_once_into_memory(network: nn.Module) -> None:
    seen: list[int] = []

    class Watched(Pairs):
        def __getitem__(self, position: int) -> tuple[Tensor, int]:
            seen.append(position)
            return super().__getitem__(position)

    evidence = Evidence(Watched(), batch_size=16)
    assert not seen
    assert [len(inputs) for inputs, _ in evidence.batches()] == [16, 16, 16, 12]
    seen.clear()
    assert evidence.in_memory() is evidence.in_memory()
    evidence.take(torch.arange(3)).judge(network)
    assert seen == list(range(60))


class Endless(IterableDataset):
    """It has no end that is known."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(INPUTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((part for part in batches()), r"a generator, which can be read once only; give .*list\(inputs\)"),
        (iter(batches()), "a list_iterator, which can be read once only"),
        (Endless(), r"an IterableDataset has no end .*give DataLoader\(dataset, batch_size=...\)"),
        ("images", "inputs is a str, and a network is called with one tensor"),
        (3, "inputs is a int"),
        (nn.Linear(2, 2), r"inputs is a network; what arrived comes first: repair\(model, inputs, labels\)"),
        ({}, "an empty dict"),
        ({"input": INPUTS, "mask": None}, "'mask'.* is a NoneType, .*leave it out"),
        (INPUTS.sum(), "inputs is a single number"),
        (INPUTS / 0, "inputs hold values that are not finite"),
    ],
)
def test_inputs_that_are_no_examples(arguments: object, message: str) -> None:
    with pytest.raises(QuietnnError, match=message):
        Evidence(arguments)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "hold no batch"),
        ([(INPUTS, CLASSES, CLASSES)], "a batch has 3 parts"),
        (INPUTS.tolist(), r"inputs is a list.*torch.as_tensor"),
        ([INPUTS, (INPUTS, CLASSES)], "some batches have labels and others have none"),
        ([INPUTS, INPUTS[:, :2]], "do not go together .*; pad them to one length"),
        ([(INPUTS, CLASSES[:5])], r"60 inputs do not go with labels of shape \(5,\)"),
        ([INPUTS, INPUTS * torch.nan], "not finite"),
    ],
)
def test_batches_that_do_not_fit(inputs: object, message: str) -> None:
    with pytest.raises(QuietnnError, match=message):
        Evidence(inputs).in_memory()


@pytest.mark.parametrize(
    "inputs", [DataLoader(Pairs()), Pairs(), batches(), {"input": INPUTS, "labels": CLASSES}], ids=lambda one: type(one)
)
def test_labels_given_twice_are_refused(inputs: object) -> None:
    with pytest.raises(InvalidConfig, match="labels were given too; leave"):
        Evidence(inputs, CLASSES)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (CLASSES + 1, "the largest label is 3, and the network has outputs for the classes 0 to 2"),
        (CLASSES - 1, "the smallest label is -1; class numbers start at 0"),
        (CLASSES.float(), r"labels are torch.float32; .*labels.long\(\)"),
        (CLASSES[:, None], r"have shape \(60, 1\)"),
        (CLASSES[:, None].float(), r"have shape \(60, 1\)"),
        (CLASSES[:7], r"60 inputs do not go with labels of shape \(7,\)"),
        ([str(label) for label in CLASSES.tolist()], "labels is a list"),
    ],
)
def test_labels_that_are_not_class_numbers(network: nn.Module, labels: object, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Evidence(INPUTS, labels).judge(network)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": CLASSES}, r"labels came without inputs; give both: repair\(model, inputs, labels\)"),
        ({"mean_loss": lambda *_: torch.zeros(())}, r"mean_loss goes with num_examples: Evidence\(mean_loss=f, num"),
        ({"num_examples": 3}, "mean_loss goes with num_examples"),
        ({"inputs": INPUTS, "batch_size": 0}, "batch_size is 0; it must be a whole number, 1 or more"),
        ({"inputs": INPUTS, "score": 0.5}, "score is a float; give a function"),
        ({"inputs": INPUTS, "loss": "mse"}, "loss is a str; give a function"),
    ],
)
def test_what_does_not_go_together(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Evidence(**arguments)


def test_an_evidence_is_passed_alone() -> None:
    evidence = Evidence(INPUTS)
    assert Evidence.of(evidence) is evidence
    with pytest.raises(InvalidConfig, match=r"labels came beside an Evidence.*dataclasses.replace\(evidence"):
        Evidence.of(evidence, CLASSES)
    with pytest.raises(InvalidConfig, match="augment came beside an Evidence"):
        Evidence.of(evidence, augment=lambda inputs, generator: inputs)
    nothing = Evidence()
    assert (len(nothing), nothing.has_inputs, nothing.has_labels) == (0, False, False)


def test_verbs_say_what_they_need() -> None:
    with pytest.raises(InvalidConfig, match=r"calibrate needs inputs.*calibrate\(model, inputs, \.\.\.\)"):
        some_inputs(None, "calibrate")
    with pytest.raises(InvalidConfig, match=r"tune needs labels.*tune\(model, inputs, labels"):
        labelled(INPUTS, None, "tune")
    with pytest.raises(InvalidConfig, match=r"got a function; .*Evidence\(mean_loss=function, num_examples=100\)"):
        labelled(lambda network: 0.0, None, "posterior")


class Returns(nn.Module):
    """A network that wraps what another returns."""

    def __init__(self, network: nn.Module, wrap: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.network, self.wrap = network, wrap

    def forward(self, inputs: Tensor) -> object:
        return self.wrap(self.network(inputs))


class WithLogits:
    """What a transformers classifier returns."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


@pytest.mark.parametrize(
    "wrap",
    [WithLogits, lambda out: {"loss": None, "logits": out}, lambda out: (out, None), lambda out: [out, out]],
)
def test_outputs_are_unwrapped(network: nn.Module, wrap: Callable[[Tensor], object]) -> None:
    evidence = Evidence(INPUTS, CLASSES)
    wrapped = Returns(network, wrap)
    assert torch.equal(evidence.judge(wrapped).losses, evidence.judge(network).losses)
    result = quietnn.repair(wrapped, INPUTS, CLASSES, noise_variance=0.01, max_passes=30)
    assert result.details["expected_accuracy"] > 0.5


@pytest.mark.parametrize(
    "wrap", [lambda out: {"scores": out}, lambda out: (), lambda out: None, lambda out: ("a", out)]
)
def test_outputs_without_a_tensor_are_refused(network: nn.Module, wrap: Callable[[Tensor], object]) -> None:
    with pytest.raises(QuietnnError, match="no outputs were found; return a tensor"):
        Evidence(INPUTS, CLASSES).judge(Returns(network, wrap))


def test_outputs_of_another_shape_are_refused(network: nn.Module) -> None:
    with pytest.raises(InvalidConfig, match=r"outputs have shape \(60, 3, 1\) for 60 labels"):
        Evidence(INPUTS, CLASSES).judge(Returns(network, lambda out: out[..., None]))


def test_probabilities_of_classes_are_labels_too(network: nn.Module) -> None:
    soft = Evidence(INPUTS, nn.functional.one_hot(CLASSES, 3).float()).judge(network)
    torch.testing.assert_close(soft.losses, Evidence(INPUTS, CLASSES).judge(network).losses)
    assert soft.right is None, "an accuracy would need class numbers"


def test_a_loss_of_ones_own_compares_outputs_with_anything(network: nn.Module) -> None:
    targets = torch.zeros(60, 3)
    evidence = Evidence(INPUTS, targets, loss=lambda outputs, wanted: (outputs - wanted).square().mean(1))
    score = evidence.score_of(network)
    assert (score.accuracy, score.num_examples) == (None, 60)
    assert score.loss == pytest.approx(network(INPUTS).square().mean().item(), rel=1e-5)
    with pytest.raises(
        InvalidConfig, match=r"the loss returned \(\) for 60 examples; it must return one loss for each"
    ):
        replace(evidence, loss=nn.functional.mse_loss).judge(network)


def test_what_is_not_a_number_counts_as_infinite(network: nn.Module) -> None:
    broken = Returns(network, lambda out: out * torch.nan)
    assert torch.isinf(Evidence(INPUTS, CLASSES).judge(broken).losses).all()


def test_a_mean_loss_takes_the_place_of_examples() -> None:
    values = torch.arange(10.0)
    evidence = Evidence(mean_loss=lambda network, positions, generator: values[positions].mean(), num_examples=10)
    assert (len(evidence), evidence.has_inputs, evidence.has_labels) == (10, False, True)
    assert evidence.score_of(nn.Identity()) == Score(None, 4.5, 10)
    part = evidence.take(torch.tensor([2, 4, 9]))
    assert len(part) == 3
    assert float(part.loss_at(nn.Identity(), torch.tensor([1, 2]), None)) == 6.5


def test_variants_are_made_where_something_is_fitted_and_nowhere_else(network: nn.Module) -> None:
    evidence = Evidence(INPUTS, CLASSES, augment=lambda inputs, generator: 0 * inputs)
    plain, everything = replace(evidence, augment=None), torch.arange(60)
    fitted = evidence.loss_at(network, everything, torch.Generator())
    assert not torch.equal(fitted, plain.loss_at(network, everything, torch.Generator()))
    assert torch.equal(evidence.loss_at(network, everything, None), plain.loss_at(network, everything, None))


def test_modes_are_restored() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train()
    model[1].eval()
    evidence = Evidence(INPUTS, CLASSES)
    evidence.judge(model)
    assert [layer.training for layer in model] == [True, False]


@pytest.mark.parametrize("kind", [float, torch.tensor, numpy.float32, numpy.float64])
def test_a_score_may_be_any_number_and_has_a_direction(kind: Callable[[float], object]) -> None:
    higher = Evidence(score=lambda network: kind(0.5)).score_of(nn.Identity())
    lower = Evidence(score=lambda network: kind(0.5), higher_is_better=False).score_of(nn.Identity())
    assert (higher.loss, higher.value, lower.loss, lower.value) == (-0.5, 0.5, 0.5, 0.5)
    assert str(lower) == "0.5"


@pytest.mark.parametrize("returned", [None, "0.5", torch.zeros(2), [0.5]])
def test_a_score_that_is_no_number_is_refused(returned: object) -> None:
    message = r"the score returned a .*return one number, score=lambda network: float\(...\)"
    with pytest.raises(InvalidConfig, match=message):
        Evidence(score=lambda network: returned).score_of(nn.Identity())


def test_a_score_that_is_not_a_number_is_the_worst() -> None:
    assert as_score(float("nan")).loss == as_score(float("nan"), higher_is_better=False).loss == float("inf")


def test_a_score_can_look_at_some_of_the_examples(network: nn.Module) -> None:
    evidence = Evidence(INPUTS, CLASSES)
    subset = evidence.as_score
    assert isinstance(subset, SubsetScore)
    assert subset(network) == evidence.score_of(network)
    some = torch.tensor([3, 8])
    assert subset.of(network, some) == evidence.take(some).score_of(network)
    own = SubsetScore(lambda network, positions: Score(None, float(positions.sum()), len(positions)), 60)
    part = Evidence(INPUTS, CLASSES, score=own).take(torch.tensor([7, 9]))
    assert part.score_of(network).loss == 16.0


def test_without_labels_the_inputs_are_left() -> None:
    evidence = Evidence(INPUTS, CLASSES, score=lambda network: 1.0).without_labels()
    assert (evidence.has_inputs, evidence.has_labels, evidence.score) == (True, False, None)
    assert not Evidence(batches()).without_labels().has_labels


def test_a_pair_is_not_two_batches() -> None:
    with pytest.raises(QuietnnError, match=r"repair\(model, inputs, labels\)"):
        Evidence((torch.rand(6, 4), torch.arange(6) % 3))
