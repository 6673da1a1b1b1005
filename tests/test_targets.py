"""Modules, state dicts and tensors, seen as named noisy weights and back."""

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
import torch
from torch import Tensor, nn

from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.targets import check_fits, noisy_weights, with_weights

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


def test_noisy_weights_share_memory_with_the_target(tiny_net: nn.Module) -> None:
    noisy_weights(tiny_net)["conv.weight"].zero_()
    assert not tiny_net.conv.weight.any()
    state = {"w": torch.ones(2, 2)}
    noisy_weights(state)["w"].zero_()
    assert not state["w"].any()


def test_module_and_state_dict_give_the_same_names(tiny_net: nn.Module) -> None:
    by_module, by_state = noisy_weights(tiny_net), noisy_weights(tiny_net.state_dict())
    assert list(by_module) == list(by_state) == ["token", "conv.weight", "conv.bias", "embed.weight", "head.bias"]
    assert all(by_module[name].data_ptr() == by_state[name].data_ptr() for name in by_module)


def test_no_gradient_is_recorded(tiny_net: nn.Module) -> None:
    assert not any(tensor.requires_grad for tensor in noisy_weights(tiny_net).values())
    assert not with_weights(nn.Parameter(torch.ones(2)), {"tensor": torch.zeros(2)}).requires_grad


def test_names_of_your_own(tiny_net: nn.Module) -> None:
    assert list(noisy_weights(tiny_net, noisy=["ln.weight", "head.weight", "embed.weight"])) == [
        "ln.weight",
        "embed.weight",
    ]


def test_tied_weights_go_by_their_first_name_as_in_named_parameters() -> None:
    network = nn.ModuleDict({"words": nn.Embedding(3, 2), "head": nn.Linear(2, 3, bias=False)})
    network["head"].weight = network["words"].weight
    first = [name for name, _ in network.named_parameters()]
    assert list(noisy_weights(network)) == list(noisy_weights(network.state_dict())) == first == ["words.weight"]
    assert list(noisy_weights(network, noisy=["head.weight", "words.weight"])) == first, "in whatever order one asks"


@pytest.mark.parametrize("kind", ["module", "state"])
def test_an_unknown_name(tiny_net: nn.Module, kind: str) -> None:
    target = tiny_net if kind == "module" else tiny_net.state_dict()
    with pytest.raises(InvalidWeights, match=r"'fc.weight' is not a tensor of this model; its tensors are token"):
        noisy_weights(target, noisy=["fc.weight"])


@pytest.mark.parametrize("target", [nn.BatchNorm2d(3), nn.ReLU(), {}, {"n": torch.ones(2, dtype=torch.int32)}])
def test_no_noisy_parameter_at_all(target: nn.Module | dict[str, Tensor]) -> None:
    with pytest.raises(InvalidWeights, match=r"no noisy parameter at all; check the model"):
        noisy_weights(target)


def test_neither_module_nor_state_dict_nor_tensor() -> None:
    with pytest.raises(QuietnnError, match=r"from a list; give a module, a state dict or a tensor"):
        noisy_weights([torch.ones(2)])  # type: ignore[arg-type]


def test_a_training_checkpoint_is_not_a_state_dict() -> None:
    with pytest.raises(InvalidWeights, match=r"'model' is a dict, not a tensor.*checkpoint\['model'\]"):
        noisy_weights({"model": {"w": torch.ones(2)}})  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", ["module", "state", "tensor"])
@pytest.mark.parametrize("in_place", [False, True])
def test_weights_are_replaced_in_a_copy_or_in_place(tiny_net: nn.Module, kind: str, in_place: bool) -> None:
    if kind == "tensor":
        tensor = torch.ones(2)
        assert with_weights(tensor, {"tensor": torch.zeros(2)}, in_place=in_place).tolist() == [0.0, 0.0]
        assert tensor.any() != in_place
        return
    target = tiny_net if kind == "module" else tiny_net.state_dict()
    result = with_weights(target, {"embed.weight": torch.zeros(6, 5)}, in_place=in_place)
    state = result.state_dict() if isinstance(result, nn.Module) else result
    assert (result is target) == in_place
    assert not state["head.weight"].any(), "the tied name follows"
    assert bool(tiny_net.embed.weight.any()) != in_place


@pytest.mark.parametrize("kind", ["module", "state"])
def test_a_copy_shares_no_memory(tiny_net: nn.Module, kind: str) -> None:
    target = tiny_net if kind == "module" else tiny_net.state_dict()
    result = with_weights(target, {"embed.weight": torch.zeros(6, 5)})
    state = result.state_dict() if isinstance(result, nn.Module) else result
    assert list(state) == list(tiny_net.state_dict())
    mine = {tensor.data_ptr() for tensor in tiny_net.state_dict().values()}
    assert mine.isdisjoint(tensor.data_ptr() for tensor in state.values())
    assert state["embed.weight"].data_ptr() == state["head.weight"].data_ptr()


def test_a_copied_state_dict_keeps_its_type_and_versions(tiny_net: nn.Module) -> None:
    state = tiny_net.state_dict()
    result = with_weights(state, {"conv.bias": torch.zeros(4)})
    assert type(result) is type(state)
    assert result._metadata == state._metadata
    assert with_weights(MappingProxyType({"w": torch.ones(1)}), {"w": torch.zeros(1)}) == {"w": torch.zeros(1)}


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("fc.weight", (2,), "'fc.weight' is not a tensor of this model; its tensors are"),
        ("conv.bias", (5,), r"conv.bias has shape \(5,\) where the model has \(4,\); use weights of the same"),
    ],
)
@pytest.mark.parametrize("kind", ["module", "state"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_mismatched_state_dict_changes_nothing(
    tiny_net: nn.Module, snapshot: Snapshot, kind: str, in_place: bool, name: str, shape: tuple[int], message: str
) -> None:
    target = tiny_net if kind == "module" else copy.deepcopy(tiny_net.state_dict())
    before = snapshot(tiny_net.state_dict())
    with pytest.raises(InvalidWeights, match=message):
        with_weights(target, {"token": torch.zeros(1, 3), name: torch.zeros(shape)}, in_place=in_place)
    assert snapshot(target.state_dict() if isinstance(target, nn.Module) else target) == before


def test_check_fits_accepts_a_part() -> None:
    check_fits({"a": torch.ones(2), "b": torch.ones(3)}, {"a": torch.zeros(2)})
