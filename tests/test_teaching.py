"""A clean network as the teacher: its outputs are labels, of variants too, and what cannot be one is refused."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.repairs.conftest import Miniature, make
from torch import Tensor, nn
from torch.nn import functional

from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.repairs.front import repair
from quietnn.teaching import divergence, told_by


@pytest.fixture(scope="module")
def miniature() -> Miniature:
    return make(nn.BatchNorm1d(24))


def test_the_divergence_is_cross_entropy_less_the_teacher_s_own_entropy() -> None:
    outputs, told = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    probabilities = told.softmax(1)
    expected = functional.cross_entropy(outputs, probabilities, reduction="none")
    own = functional.cross_entropy(told, probabilities, reduction="none")
    torch.testing.assert_close(divergence(outputs, told), expected - own)


def test_outputs_with_a_class_at_each_place_have_one_loss_an_example() -> None:
    outputs, told = torch.randn(2, 5, 3, 7, generator=torch.Generator().manual_seed(0))
    by_place = torch.stack([divergence(outputs[..., place], told[..., place]) for place in range(7)])
    torch.testing.assert_close(divergence(outputs, told), by_place.mean(0))


def test_a_teacher_finds_nothing_wrong_with_itself(miniature: Miniature) -> None:
    evidence = Evidence(miniature.inputs, teacher=miniature.model)
    assert evidence.has_labels
    assert repr(evidence) == "Evidence(60 examples, a teacher)"
    assert evidence.score_of(miniature.model).loss == pytest.approx(0, abs=1e-6)
    assert evidence.score_of(nn.Linear(8, 3)).loss > 0.1


def test_the_teacher_is_asked_again_of_variants(miniature: Miniature) -> None:
    def other(inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs.flip(1)

    evidence = Evidence(miniature.inputs, teacher=miniature.model, augment=other)
    loss = evidence.loss_at(miniature.model, torch.arange(60), torch.Generator())
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)


def test_labels_of_parts_and_of_batches_are_the_teacher_s(miniature: Miniature) -> None:
    whole = Evidence(miniature.inputs, teacher=miniature.model).in_memory()
    part = whole.take(torch.tensor([3, 5]))
    torch.testing.assert_close(part.in_memory().labels, whole.labels[[3, 5]])
    streamed = Evidence(list(miniature.inputs.split(25)), teacher=miniature.model)
    assert streamed.is_streamed
    torch.testing.assert_close(torch.cat([labels for _, labels in streamed.batches()]), whole.labels)
    torch.testing.assert_close(streamed.in_memory().labels, whole.labels)
    assert not whole.without_labels().has_labels


def test_a_loss_of_one_s_own_compares_outputs(miniature: Miniature) -> None:
    def squared(outputs: Tensor, told: Tensor) -> Tensor:
        return (outputs - told).square().mean(1)

    evidence = Evidence(miniature.inputs, teacher=miniature.model, loss=squared)
    other = nn.Linear(8, 3)
    expected = (other(miniature.inputs) - miniature.model(miniature.inputs)).square().mean()
    assert evidence.score_of(other).loss == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_teacher_stays_as_it_is(miniature: Miniature) -> None:
    teacher = miniature.model.train()
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    told_by(teacher, miniature.inputs, lambda network, inputs: network(inputs))
    assert teacher.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())
    teacher.eval()


def test_the_posterior_learns_from_it_without_labels(miniature: Miniature) -> None:
    received = _shaken(miniature.model)
    before = Evidence(miniature.inputs, teacher=miniature.model).score_of(received).loss
    result = repair(received, miniature.inputs, teacher=miniature.model, method="posterior_digital", wnr_db=3.0)
    assert Evidence(miniature.inputs, teacher=miniature.model).score_of(result.model).loss < 0.5 * before
    assert "matched" in result.details["held_out_loss"]


def _shaken(model: nn.Sequential) -> nn.Sequential:
    shaken = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    for layer in shaken:
        if isinstance(layer, nn.Linear):
            std = 0.7 * float(layer.weight.detach().std())
            layer.weight.data += std * torch.randn(layer.weight.shape, generator=generator)
    return shaken


def test_what_is_no_teacher_is_refused(miniature: Miniature) -> None:
    inputs, labels, clean = miniature.inputs, miniature.labels, miniature.model
    with pytest.raises(InvalidConfig, match=r"teacher is a str.*teacher=clean"):
        Evidence(inputs, teacher="clean")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="needs inputs to tell of"):
        Evidence(teacher=clean)
    with pytest.raises(InvalidConfig, match="labels came beside a teacher"):
        Evidence(inputs, labels, teacher=clean)
    with pytest.raises(InvalidConfig, match="labels came beside a teacher"):
        Evidence({"input": inputs, "labels": labels}, teacher=clean)
    with pytest.raises(InvalidConfig, match=r"shape \(60, 4\) and the teacher's \(60, 3\)"):
        Evidence(inputs, teacher=clean).score_of(nn.Linear(8, 4))
    broken = nn.Linear(8, 3)
    broken.weight.data.fill_(torch.nan)
    with pytest.raises(InvalidConfig, match="teacher's outputs are not finite"):
        Evidence(inputs, teacher=broken).score_of(clean)
    with pytest.raises(InvalidConfig, match="teacher came beside an Evidence"):
        Evidence.of(replace(Evidence(inputs)), teacher=clean)
