"""What users hand in and networks hand back: taken, or refused with a remedy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from quietnn import calibrate, classification_loss
from quietnn.batches import check_inputs, check_labels, logits_of
from quietnn.errors import InvalidConfig, QuietnnError

INPUTS = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 3


class Wrapped(nn.Module):
    """A network that returns its outputs in some wrapping."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer, self.norm = kind, nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, inputs: Tensor) -> object:
        out = self.norm(self.layer(inputs))
        return {
            "tensor": out,
            "tuple": (out, inputs),
            "list": [out],
            "dict": {"hidden": inputs, "logits": out},
            "object": SimpleNamespace(logits=out),
            "nested": ({"logits": out}, None),
            "empty": (),
            "unnamed": {"scores": out},
            "text": "three",
            "vector": out[:, 0],
        }[self.kind]


def network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return Wrapped(kind).eval()


@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "object", "nested"])
def test_outputs_are_unwrapped(kind: str) -> None:
    loss = classification_loss(INPUTS, LABELS)
    expected, found = (loss(network(name), torch.arange(6), None) for name in ("tensor", kind))
    assert torch.equal(expected, found)


@pytest.mark.parametrize("kind", ["empty", "unnamed", "text", "vector"])
def test_outputs_without_logits_are_refused(kind: str) -> None:
    with pytest.raises(QuietnnError, match=r"return a tensor|\(examples, classes\)"):
        classification_loss(INPUTS, LABELS)(network(kind), torch.arange(6), None)
    calibrate(network(kind), INPUTS, noise_variance=0.01).model  # which does not look at them


def test_integers_of_any_width_are_class_numbers_and_so_are_probabilities() -> None:
    losses = [
        classification_loss(INPUTS, labels)(network("tensor"), torch.arange(6), None).item()
        for labels in (LABELS, LABELS.int(), LABELS.to(torch.uint8), nn.functional.one_hot(LABELS).float())
    ]
    assert losses == pytest.approx([losses[0]] * 4)


@pytest.mark.parametrize(
    ("labels", "remedy"),
    [
        (LABELS - 1, "smallest label is -1"),
        (LABELS.float(), r"labels.long\(\)"),
        (LABELS == 0, r"labels.long\(\)"),
        (LABELS[:, None], r"labels\[:, 0\]"),
        (LABELS[:5], "one for each"),
        (torch.tensor(1), "one for each"),
        (LABELS.tolist(), "torch.as_tensor"),
        (LABELS.numpy(), "torch.as_tensor"),
    ],
)
def test_labels_of_another_kind_are_refused_at_once(labels: object, remedy: str) -> None:
    with pytest.raises(InvalidConfig, match=remedy):
        classification_loss(INPUTS, labels)


def test_labels_that_the_network_has_no_output_for_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="largest label is 3, and the network has outputs for the classes 0 to 2"):
        classification_loss(INPUTS, LABELS + 1)(network("tensor"), torch.arange(6), None)


@pytest.mark.parametrize(
    ("inputs", "remedy"),
    [
        (INPUTS.numpy(), "ndarray.*torch.as_tensor"),
        (INPUTS.tolist(), "list.*torch.as_tensor"),
        ({"inputs": INPUTS, "mask": None}, r"inputs\['mask'\] is None.*leave it out"),
        ({"inputs": np.zeros((6, 4))}, r"inputs\['inputs'\] is a ndarray.*torch.as_tensor"),
        (None, "NoneType"),
    ],
)
def test_inputs_of_another_kind_are_refused_at_once(inputs: object, remedy: str) -> None:
    with pytest.raises(InvalidConfig, match=remedy):
        classification_loss(inputs, LABELS)
    with pytest.raises(InvalidConfig, match=remedy):
        calibrate(network("tensor"), inputs, noise_variance=0.01).model


def test_what_is_right_comes_back_as_it_is() -> None:
    assert check_inputs({"a": INPUTS, "b": INPUTS[:4]}) == 4
    assert check_labels(LABELS, 6) is LABELS
    assert logits_of(INPUTS) is INPUTS
