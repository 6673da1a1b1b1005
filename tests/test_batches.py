"""What users hand in and networks hand back: taken, or refused with a remedy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from quietnn import Evidence, calibrate
from quietnn.batches import logits_of, num_inputs
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
    assert num_inputs({"a": INPUTS, "b": INPUTS[:4]}) == 4
    assert logits_of(INPUTS) is INPUTS


def test_none_is_no_inputs() -> None:
    with pytest.raises(InvalidConfig, match=r"needs inputs.*calibrate\(model, inputs"):
        calibrate(network("tensor"), None, noise_variance=0.01)
    with pytest.raises(InvalidConfig, match="labels came without inputs"):
        Evidence(None, LABELS)
