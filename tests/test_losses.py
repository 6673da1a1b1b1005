"""Labels are taken as class numbers or probabilities; the loss of each example is one number, or a reason."""

import pytest
import torch
from torch import nn

from quietnn import Evidence
from quietnn.errors import InvalidConfig
from quietnn.losses import Verdict, checked_labels, cross_entropy, finite, losses_of, right_of

INPUTS = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 3
NETWORK = nn.Linear(4, 3)


def test_labels_that_are_right_come_back_as_they_are() -> None:
    assert checked_labels(LABELS, 6, cross_entropy) is LABELS


def test_integers_of_any_width_and_form_are_class_numbers_and_so_are_probabilities() -> None:
    probabilities = nn.functional.one_hot(LABELS).float()
    losses = [
        Evidence(INPUTS, labels).loss_at(NETWORK, torch.arange(6), None).item()
        for labels in (LABELS, LABELS.int(), LABELS.to(torch.uint8), LABELS.tolist(), LABELS.numpy(), probabilities)
    ]
    assert losses == pytest.approx([losses[0]] * 6)


@pytest.mark.parametrize(
    ("labels", "remedy"),
    [
        (LABELS - 1, "smallest label is -1"),
        (LABELS.float(), r"labels.long\(\)"),
        (LABELS == 0, r"labels.long\(\)"),
        (LABELS[:, None], r"labels\[:, 0\]"),
        (LABELS[:5], "one for each"),
        (torch.tensor(1), "one for each"),
        (["cat", "dog"] * 3, "torch.as_tensor"),
    ],
)
def test_labels_of_another_kind_are_refused_at_once(labels: object, remedy: str) -> None:
    with pytest.raises(InvalidConfig, match=remedy):
        Evidence(INPUTS, labels)


def test_labels_that_the_network_has_no_output_for_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="largest label is 3, and the network has outputs for the classes 0 to 2"):
        Evidence(INPUTS, LABELS + 1).loss_at(NETWORK, torch.arange(6), None)


def test_a_label_at_each_of_several_positions_counts_by_its_mean() -> None:
    outputs, labels = torch.randn(2, 3, 5), torch.randint(0, 3, (2, 5))
    each = losses_of(cross_entropy, outputs, labels)
    expected = [cross_entropy(outputs[index].T, labels[index]).mean().item() for index in range(2)]
    assert each.tolist() == pytest.approx(expected)


def test_a_loss_that_fails_is_told_with_the_shapes() -> None:
    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with pytest.raises(
        InvalidConfig, match=r"failed on outputs of shape \(6, 3\) and labels of shape \(6,\).*: no\. It"
    ):
        losses_of(loss, NETWORK(INPUTS), LABELS)


def test_what_is_right_and_what_is_infinite() -> None:
    outputs = torch.eye(3)
    assert right_of(outputs, torch.tensor([0, 0, 2])).tolist() == [1.0, 0.0, 1.0]
    assert right_of(outputs, torch.eye(3)) is None
    assert finite([torch.tensor([1.0]), torch.tensor([torch.nan])]).tolist() == [1.0, torch.inf]
    assert Verdict(outputs[0], None).at(torch.tensor([1])).right is None
