"""Which layers stand behind the last normalisation of an input, and MMSE of those in front of it."""

import torch
from torch import Tensor, nn

from quietnn.repairs.affine import MMSE
from quietnn.repairs.branch_denoisers import behind_last_normalisation, branch_denoisers
from quietnn.repairs.grouped import GroupedWeights


class Encoder(nn.Module):
    """A block of a transformer whose layers are defined in another order than they are called in."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.pool = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.start = nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, inputs: Tensor) -> Tensor:
        stream = inputs + self.start
        stream = self.norm(stream + self.attention(stream, stream, stream, need_weights=False)[0])
        out: Tensor = self.head(torch.tanh(self.pool(stream[:, 0])))
        return out


def tail_of(model: nn.Module, *shape: int) -> set[str] | None:
    found = behind_last_normalisation(model, lambda: model(torch.rand(shape)))
    return None if found is None else set(found)


def test_the_tail_is_found_by_calls_and_not_by_names_or_order() -> None:
    found = tail_of(Encoder(), 2, 5, 8)
    assert found == {"head.weight", "head.bias", "pool.weight", "pool.bias", "start"}, "start is the model's own"


def test_an_attention_in_the_tail_takes_its_uncalled_projection_along() -> None:
    class Pooled(Encoder):
        def forward(self, inputs: Tensor) -> Tensor:
            stream = self.norm(self.pool(inputs))
            out: Tensor = self.head(self.attention(stream, stream, stream, need_weights=False)[0].mean(1))
            return out

    found = tail_of(Pooled(), 2, 5, 8)
    assert found is not None
    assert {"attention.in_proj_weight", "attention.out_proj.weight", "head.weight"} <= found
    assert not {"pool.weight", "norm.weight"} & found


def test_a_projection_that_the_model_itself_holds_is_in_the_tail() -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm, self.projection = nn.Linear(4, 4), nn.LayerNorm(4), nn.Parameter(torch.eye(4))

        def forward(self, inputs: Tensor) -> Tensor:
            out: Tensor = self.norm(self.layer(inputs)) @ self.projection
            return out

    assert tail_of(Projected(), 2, 4) == {"projection"}


def test_a_compiled_network_is_seen_through() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)).eval()
    compiled = torch.compile(model, backend="eager")
    assert tail_of(compiled, 2, 4) == {"_orig_mod.2.weight", "_orig_mod.2.bias"}
    compiled(torch.rand(2, 4))
    assert tail_of(compiled, 2, 4) == {"_orig_mod.2.weight", "_orig_mod.2.bias"}, "also once it is compiled"


def test_a_tied_weight_is_in_the_tail_under_all_of_its_names() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    assert tail_of(model, 2, 4) == {"0.weight", "2.weight", "2.bias"}


def test_stored_statistics_are_no_normalisation_of_each_input() -> None:
    assert tail_of(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval(), nn.Linear(4, 4)), 2, 4) is None
    tracking = nn.Sequential(nn.Conv1d(4, 4, 1), nn.InstanceNorm1d(4, track_running_stats=True), nn.Conv1d(4, 4, 1))
    assert tail_of(tracking.eval(), 2, 4, 5) is None
    plain = nn.Sequential(nn.Conv1d(4, 4, 1), nn.InstanceNorm1d(4), nn.Conv1d(4, 4, 1))
    assert tail_of(plain, 2, 4, 5) == {"2.weight", "2.bias"}


def test_a_normalisation_of_ones_own_counts_if_named() -> None:
    class Mine(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs / inputs.norm(dim=1, keepdim=True)

    model = nn.Sequential(nn.Linear(4, 4), Mine(), nn.Linear(4, 4))
    assert behind_last_normalisation(model, lambda: model(torch.rand(2, 4))) is None
    found = behind_last_normalisation(model, lambda: model(torch.rand(2, 4)), normalisation=(Mine,))
    assert found == {"2.weight", "2.bias"}


def test_no_hook_is_left_behind_even_if_the_run_fails() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    try:
        tail_of(model, 2, 5)
    except RuntimeError:
        assert not any(layer._forward_pre_hooks for layer in model.modules())
    else:
        raise AssertionError("five features do not go into four")


def test_groups_in_the_tail_stay_and_the_others_are_mmse() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {f"{layer}.weight": torch.randn(50, generator=generator) for layer in ("front", "tail")}
    layers = GroupedWeights.of(weights, 0.5, groups="layerwise")
    estimate = layers.estimate(branch_denoisers(layers, {"tail.weight"}))
    assert torch.equal(estimate["tail.weight"], weights["tail.weight"])
    assert torch.equal(estimate["front.weight"], layers.estimate(layers.denoisers(MMSE))["front.weight"])
    assert not torch.equal(estimate["front.weight"], weights["front.weight"])
