"""What users hand in and networks hand back: taken, or refused with a remedy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from quietnn import Evidence, calibrate
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
    loss_at = Evidence(INPUTS, LABELS).loss_at
    expected, found = (loss_at(network(name), torch.arange(6), None) for name in ("tensor", kind))
    assert torch.equal(expected, found)


@pytest.mark.parametrize("kind", ["empty", "unnamed", "text", "vector"])
def test_outputs_without_logits_are_refused(kind: str) -> None:
    with pytest.raises(QuietnnError, match=r"return a tensor|\(examples, classes\)"):
        Evidence(INPUTS, LABELS).loss_at(network(kind), torch.arange(6), None)
    calibrate(network(kind), INPUTS, noise_variance=0.01)  # which does not look at them


def test_integers_of_any_width_and_form_are_class_numbers_and_so_are_probabilities() -> None:
    probabilities = nn.functional.one_hot(LABELS).float()
    losses = [
        Evidence(INPUTS, labels).loss_at(network("tensor"), torch.arange(6), None).item()
        for labels in (LABELS, LABELS.int(), LABELS.to(torch.uint8), LABELS.tolist(), LABELS.numpy(), probabilities)
    ]
    assert losses == pytest.approx([losses[0]] * 6)


@pytest.mark.parametrize("form", ["array", "doubles", "batches", "arrays", "pairs", "dataset", "loader", "keywords"])
def test_inputs_in_any_form_are_the_same_inputs(form: str) -> None:
    array, dataset = INPUTS.numpy(), TensorDataset(INPUTS, LABELS)
    given: object = {
        "array": array,
        "doubles": array.astype(np.float64),
        "batches": [INPUTS[:4], INPUTS[4:]],
        "arrays": [array[:4], array[4:]],
        "pairs": [(INPUTS[:4], LABELS[:4]), (INPUTS[4:], LABELS[4:])],
        "dataset": dataset,
        "loader": DataLoader(dataset, batch_size=4),
        "keywords": {"inputs": array},
    }[form]
    expected, found = (calibrate(network("tensor"), inputs, noise_variance=0.01).model for inputs in (INPUTS, given))
    assert torch.equal(found.norm.running_mean, expected.norm.running_mean)
    assert not torch.equal(found.norm.running_mean, network("tensor").norm.running_mean)


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
        Evidence(INPUTS, LABELS + 1).loss_at(network("tensor"), torch.arange(6), None)


@pytest.mark.parametrize(
    ("inputs", "remedy"),
    [
        (INPUTS.tolist(), "list.*torch.as_tensor"),
        (["a", "b"], "list.*torch.as_tensor"),
        ({"inputs": INPUTS, "mask": None}, r"inputs\['mask'\] is a NoneType.*leave it out"),
        ({"inputs": INPUTS.tolist()}, r"inputs\['inputs'\] is a list.*torch.as_tensor"),
        (iter([INPUTS]), r"read once only.*list\(inputs\)"),
        (network("tensor"), "what arrived comes first"),
        (nn.Sequential(network("tensor")), "what arrived comes first"),
    ],
)
def test_inputs_of_another_kind_are_refused_at_once(inputs: object, remedy: str) -> None:
    with pytest.raises(InvalidConfig, match=remedy):
        Evidence(inputs)
    with pytest.raises(InvalidConfig, match=remedy):
        calibrate(network("tensor"), inputs, noise_variance=0.01)


def test_what_is_right_comes_back_as_it_is() -> None:
    assert check_inputs({"a": INPUTS, "b": INPUTS[:4]}) == 4
    assert check_labels(LABELS, 6) is LABELS
    assert logits_of(INPUTS) is INPUTS


def test_none_is_no_inputs() -> None:
    with pytest.raises(InvalidConfig, match=r"needs inputs.*calibrate\(model, inputs"):
        calibrate(network("tensor"), None, noise_variance=0.01)
    with pytest.raises(InvalidConfig, match="labels came without inputs"):
        Evidence(None, LABELS)
