"""The noise variance of a model: one number, or by tensor, group, channel or weight."""

import pytest
import torch

from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.noise import mean_noise, noise_by_tensor, one_variance, scaled

WEIGHTS = {"conv.weight": torch.ones(4, 2, 3, 3), "conv.bias": torch.ones(4), "fc.weight": torch.ones(5, 4)}
GROUPS = {"conv": ("conv.weight", "conv.bias"), "fc": ("fc.weight",)}


def test_a_tensor_has_its_own_entry_or_that_of_its_group() -> None:
    noise = noise_by_tensor({"conv": 0.1, "conv.bias": 0.2, "fc": 0.3}, WEIGHTS, GROUPS)
    assert noise == {"conv.weight": 0.1, "conv.bias": 0.2, "fc.weight": 0.3}


@pytest.mark.parametrize("shape", [(4, 1, 1, 1), (4, 2, 3, 3), (3, 3), (1,)])
def test_a_tensor_that_broadcasts_fits(shape: tuple[int, ...]) -> None:
    noise = noise_by_tensor({"conv": 0.1, "conv.weight": torch.full(shape, 0.5), "fc": 0.1}, WEIGHTS, GROUPS)
    assert noise is not None
    assert mean_noise(noise, WEIGHTS, ["conv.weight"]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"conv": 0.1}, "no entry for 'fc.weight'"),
        ({"conv": 0.1, "fc": 0.1, "head": 0.1}, "names 'head'"),
        ({"conv": 0.1, "fc": torch.ones(4, 5)}, "broadcast"),
        ({"conv": 0.1, "fc": torch.ones(1, 5, 4)}, "broadcast"),
        ({"conv": -0.1, "fc": 0.1}, "conv.weight"),
        ({"conv": 0.1, "fc": torch.full((5, 4), float("nan"))}, "fc.weight"),
        ({"conv": 0.1, "fc": torch.full((5, 4), float("inf"))}, "fc.weight"),
        ({"conv": 0.1, "fc": torch.ones(5, 4, dtype=torch.complex64)}, "a variance is real"),
        (torch.ones(3), "dict by tensor name"),
        ("loud", "loud"),
        (-1.0, "-1.0"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: object, word: str) -> None:
    with pytest.raises(QuietnnError, match=word):
        noise_by_tensor(given, WEIGHTS, GROUPS)  # type: ignore[arg-type]


def test_a_model_of_one_tensor_takes_a_tensor() -> None:
    noise = noise_by_tensor(torch.tensor([1.0, 2.0]), {"w": torch.zeros(3, 2)})
    assert noise is not None
    assert mean_noise(noise, {"w": torch.zeros(3, 2)}) == 1.5


def test_one_number_is_one_number() -> None:
    assert noise_by_tensor(torch.tensor(0.5), WEIGHTS) is None
    assert one_variance(0.5) == 0.5
    with pytest.raises(InvalidConfig, match="one number"):
        one_variance({"a": 1.0})


def test_scaled_keeps_the_kind() -> None:
    assert scaled(2.0, 0.5) == 1.0
    assert scaled({"a": 2.0}, 0.5) == {"a": 1.0}
