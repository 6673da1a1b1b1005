"""Examples and networks that `auto` cannot judge by are refused, with the remedy."""

import pytest
import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.repairs.auto import auto
from quietnn.repairs.labelled import Labelled, outputs_of

CLASSES = torch.arange(60) % 3


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (CLASSES + 1, "the largest label is 3, and the network has outputs for the classes 0 to 2"),
        (CLASSES - 1, "the smallest label is -1; class numbers start at 0"),
        (CLASSES.float(), r"labels are torch.float32; .*labels.long\(\)"),
        (CLASSES[:, None], r"have shape \(60, 1\)"),
        (CLASSES[:, None].float(), r"have shape \(60, 1\)"),
        (CLASSES.tolist(), "labels is a list; give a tensor"),
        (CLASSES.numpy(), "labels is a ndarray"),
    ],
)
def test_labels_that_are_not_class_numbers(miniature: object, labels: object, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        auto(miniature.model, noise_variance=0.01, inputs=miniature.inputs, labels=labels, max_passes=30)


@pytest.mark.parametrize("has_labels", [False, True])
@pytest.mark.parametrize("noise_variance", [0.01, None])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda inputs: inputs.numpy(),
            "inputs is a ndarray, .*torch.as_tensor",
        ),
        (lambda inputs: inputs.tolist(), "inputs is a list"),
        (lambda inputs: {"input": inputs, "mask": None}, "'mask'. is None, .*leave it out"),
        (lambda inputs: {}, "an empty dict"),
        (lambda inputs: inputs.sum(), "inputs is a single number"),
        (
            lambda inputs: inputs.masked_fill(inputs == inputs[0, 0], torch.nan),
            "inputs hold values that are not finite",
        ),
    ],
)
def test_inputs_that_are_no_examples(
    miniature: object, change: object, message: str, noise_variance: float | None, has_labels: bool
) -> None:
    labels = miniature.labels if has_labels else None
    with pytest.raises(QuietnnError, match=message):
        auto(miniature.model, noise_variance=noise_variance, inputs=change(miniature.inputs), labels=labels)


class Returns(nn.Module):
    """A network that wraps what another returns."""

    def __init__(self, network: nn.Module, wrap: object) -> None:
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
def test_outputs_are_unwrapped(miniature: object, wrap: object) -> None:
    network = Returns(miniature.model, wrap)
    assert torch.equal(outputs_of(network, miniature.inputs), miniature.model(miniature.inputs))
    result = auto(network, noise_variance=0.01, inputs=miniature.inputs, labels=miniature.labels, max_passes=30)
    assert result.expected_accuracy > 0.5


@pytest.mark.parametrize(
    "wrap", [lambda out: {"scores": out}, lambda out: (), lambda out: None, lambda out: ("a", out)]
)
def test_outputs_without_a_tensor_are_refused(miniature: object, wrap: object) -> None:
    with pytest.raises(QuietnnError, match="no outputs were found; return a tensor"):
        Labelled(miniature.inputs, miniature.labels).judge(Returns(miniature.model, wrap))


def test_outputs_of_another_shape_are_refused(miniature: object) -> None:
    with pytest.raises(InvalidConfig, match=r"outputs have shape \(60, 3, 1\) for 60 labels"):
        Labelled(miniature.inputs, miniature.labels).judge(Returns(miniature.model, lambda out: out[..., None]))


def test_probabilities_of_classes_are_labels_too(miniature: object) -> None:
    soft = nn.functional.one_hot(miniature.labels, 3).float()
    hard = Labelled(miniature.inputs, miniature.labels).judge(miniature.model)
    assert torch.allclose(Labelled(miniature.inputs, soft).judge(miniature.model).losses, hard.losses)
