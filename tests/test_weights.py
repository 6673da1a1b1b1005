"""Which tensors are noisy, how they are grouped, and which are refused."""

import math
import time

import pytest
import torch
from torch import Tensor, nn

from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.weights import (
    NORMALISATION_TYPES,
    check_weights,
    layerwise,
    noisy_names,
    noisy_names_of_state,
    partition,
    whole,
)

NORMALISATION_LAYERS = [
    nn.BatchNorm1d(3),
    nn.BatchNorm2d(3),
    nn.BatchNorm3d(3),
    nn.SyncBatchNorm(3),
    nn.InstanceNorm1d(3, affine=True),
    nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    nn.InstanceNorm3d(3, affine=True),
    nn.LayerNorm(3),
    nn.GroupNorm(1, 3),
    nn.RMSNorm(3),
]


class ScaleNorm(nn.Module):
    """Known by the name of its class alone."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(3))


class Extended(ScaleNorm):
    """Known by the class that it extends."""


class PreNorm(nn.Module):
    """A wrapper: what it holds normalises or not by itself."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.norm, self.fn = nn.LayerNorm(3), inner


class LinearNorm(nn.Linear):
    """A linear layer, whatever it is called."""


class Gain(nn.Module):
    """A normalisation layer that only its author knows."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))


class TestNoisyNames:
    @pytest.mark.parametrize("layer", NORMALISATION_LAYERS, ids=lambda layer: type(layer).__name__)
    def test_normalisation_is_known_by_its_type(self, layer: nn.Module) -> None:
        assert list(layer.parameters())
        model = nn.Sequential(nn.Linear(3, 3), layer)
        assert noisy_names(model) == ("0.weight", "0.bias")
        assert noisy_names_of_state(model.state_dict()) == ("0.weight", "0.bias")

    @pytest.mark.parametrize("layer", NORMALISATION_LAYERS, ids=lambda layer: type(layer).__name__)
    def test_a_normalisation_layer_alone_has_no_noisy_parameter(self, layer: nn.Module) -> None:
        assert noisy_names(layer) == ()
        assert noisy_names_of_state(layer.state_dict()) == ()

    def test_a_name_proves_nothing(self) -> None:
        model = nn.ModuleDict({"bn1": nn.Linear(3, 3), "layer_norm": nn.Conv1d(3, 3, 1), "plain": nn.BatchNorm1d(3)})
        expected = ("bn1.weight", "bn1.bias", "layer_norm.weight", "layer_norm.bias")
        assert noisy_names(model) == expected
        assert noisy_names_of_state(model.state_dict()) == expected

    def test_a_users_own_type(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3, bias=False), Gain())
        assert noisy_names(model) == ("0.weight", "1.gain")
        assert noisy_names(model, normalisation=(*NORMALISATION_TYPES, Gain)) == ("0.weight",)

    @pytest.mark.parametrize("layer", [ScaleNorm(), Extended()], ids=lambda layer: type(layer).__name__)
    def test_normalisation_is_known_by_the_name_of_its_class(self, layer: nn.Module) -> None:
        assert noisy_names(nn.Sequential(nn.Linear(3, 3, bias=False), layer)) == ("0.weight",)

    def test_the_name_of_a_class_proves_nothing_of_wrappers_and_linear_layers(self) -> None:
        assert noisy_names(PreNorm(nn.Linear(3, 3))) == ("fn.weight", "fn.bias")
        assert noisy_names(LinearNorm(3, 3)) == ("weight", "bias")

    def test_a_users_own_types_come_on_top_of_those_that_are_known(self) -> None:
        assert noisy_names(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), Gain()), normalisation=(Gain,)) == (
            "0.weight",
            "0.bias",
        )

    def test_a_norm_over_several_axes_is_known_by_scale_and_offset_of_one_shape(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.LayerNorm((3, 4, 4)))
        assert noisy_names(model) == noisy_names_of_state(model.state_dict()) == ("0.weight", "0.bias")

    def test_well_known_buffers_in_a_bare_file_are_clean(self) -> None:
        state = {
            "fc.weight": torch.ones(2, 2),
            "rotary_emb.inv_freq": torch.ones(2),
            "final_logits_bias": torch.ones(2),
        }
        assert noisy_names_of_state(state) == ("fc.weight",)

    def test_tied_parameters_are_named_once(self, tiny_net: nn.Module) -> None:
        names = noisy_names(tiny_net)
        assert names == ("token", "conv.weight", "conv.bias", "embed.weight", "head.bias")

    def test_a_parameter_that_a_normalisation_layer_shares_is_clean(self) -> None:
        model = nn.Sequential(Gain(), nn.LayerNorm(3, bias=False))
        model[0].gain = model[1].weight
        assert noisy_names(model) == ()

    def test_the_state_dict_rule_skips_integers_and_running_statistics(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False))
        assert noisy_names_of_state({**model.state_dict(), "step.count": torch.tensor(3)}) == ("0.weight", "0.bias")

    def test_the_slope_of_a_prelu_is_noisy_unless_it_looks_like_a_normalisation_layers_scale(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.PReLU())
        assert noisy_names(model) == noisy_names_of_state(model.state_dict()) == ("0.weight", "0.bias", "1.weight")
        by_channel = nn.Sequential(nn.Linear(3, 3), nn.PReLU(3))
        assert noisy_names(by_channel) == ("0.weight", "0.bias", "1.weight")
        assert noisy_names_of_state(by_channel.state_dict()) == ("0.weight", "0.bias")

    def test_older_names_of_a_normalisation_layers_scale_and_offset(self) -> None:
        state = {"norm.gamma": torch.ones(3), "norm.beta": torch.ones(3), "block.gamma": torch.ones(3)}
        assert noisy_names_of_state(state) == ("block.gamma",)

    def test_layers_whose_name_tells_that_they_normalise(self) -> None:
        one, two = torch.ones(3), torch.ones(3, 3)
        scales = ("norm.scale", "block.ln_1.w", "norm1.g", "RMSNorm_0.scale", "ln.w", "layer_norm.bias")
        others = {"norm_proj.weight": two, "norm_proj.bias": one, "ln2.w": two, "lns.w": one, "norms.0.w": one}
        assert noisy_names_of_state({**dict.fromkeys(scales, one), **others}) == tuple(others)

    def test_module_and_state_dict_agree(self, tiny_net: nn.Module) -> None:
        by_state = set(noisy_names_of_state(tiny_net.state_dict()))
        assert by_state == {*noisy_names(tiny_net), "head.weight"}  # the tied name: a dict lists both


class TestGroups:
    def test_a_layer_is_a_module(self, tiny_net: nn.Module) -> None:
        groups = layerwise(noisy_names(tiny_net))
        assert groups == {
            "": ("token",),
            "conv": ("conv.weight", "conv.bias"),
            "embed": ("embed.weight",),
            "head": ("head.bias",),
        }

    def test_weight_and_bias_of_a_bare_layer_belong_together(self) -> None:
        assert layerwise(noisy_names(nn.Linear(2, 2))) == {"": ("weight", "bias")}

    @pytest.mark.parametrize("groups", ["whole", "layerwise", {"first": ["a.x"], "rest": ["b.y", "a.z"]}])
    def test_each_name_is_in_one_group(self, groups: str | dict[str, tuple[str, ...]]) -> None:
        names = ("a.x", "a.z", "b.y")
        members = [name for group in partition(names, groups).values() for name in group]
        assert sorted(members) == sorted(names)

    def test_many_names_take_no_time(self) -> None:
        begin = time.monotonic()
        assert len(partition([f"l{number}.weight" for number in range(20_000)], "layerwise")) == 20_000
        assert time.monotonic() - begin < 5  # for each name a search through all of them took 17

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            ("layers", "no grouping 'layers'; choose one of whole, layerwise"),
            ({"a": ["x", "y"], "b": []}, "group 'b' is empty; give each group at least one"),
            ({"a": ["x"]}, "exactly once; look at y"),
            ({"a": ["x", "y"], "b": ["y"]}, "exactly once; look at y"),
            ({"a": ["x", "y", "z"]}, "exactly once; look at z"),
            ({}, "exactly once; look at x, y"),
        ],
    )
    def test_partitions_that_do_not_fit(self, groups: str | dict[str, tuple[str, ...]], message: str) -> None:
        with pytest.raises(QuietnnError, match=message):
            partition(("x", "y"), groups)

    def test_no_noisy_parameter(self) -> None:
        with pytest.raises(InvalidWeights, match=r"no noisy parameter at all; check"):
            partition((), "whole")

    def test_whole_is_one_group(self) -> None:
        assert whole(["a", "b"]) == {"whole": ("a", "b")}


class TestCheckWeights:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_not_finite(self, value: float) -> None:
        with pytest.raises(InvalidWeights, match=r"fc.weight holds 2 values that are not finite, of 4; repair"):
            check_weights({"ok": torch.ones(1), "fc.weight": torch.tensor([1.0, value, value, 0.0])})

    @pytest.mark.parametrize("tensor", [torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.complex64)])
    def test_not_floating_point(self, tensor: Tensor) -> None:
        with pytest.raises(InvalidWeights, match=rf"w is {tensor.dtype}.*leave it out"):
            check_weights({"w": tensor})

    def test_empty(self) -> None:
        with pytest.raises(InvalidWeights, match=r"w has shape \(0, 3\) and no entries; leave it out"):
            check_weights({"w": torch.ones(0, 3)})
