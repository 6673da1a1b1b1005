"""Networks that normalise each input: branches by MMSE, and a head that noise gave a preference."""

import copy
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.repairs.affine import MMSE
from quietnn.repairs.branches import behind_last_normalisation, branch_denoisers, denoise_branches
from quietnn.repairs.grouped import GroupedWeights

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


class Residual(nn.Module):
    """A stream with branches, each normalised, and a linear head."""

    def __init__(self, num_branches: int = 4) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(16, 16) for _ in range(num_branches))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(num_branches))
        self.head = nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        for branch, norm in zip(self.branches, self.norms, strict=True):
            inputs = norm(inputs + torch.tanh(branch(inputs)))
        out: Tensor = self.head(inputs)
        return out


@pytest.fixture
def network() -> Residual:
    torch.manual_seed(0)
    return Residual().eval()


INPUTS = torch.randn(200, 16, generator=torch.Generator().manual_seed(1))


def shares(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return torch.bincount(model(INPUTS).argmax(1), minlength=3) / len(INPUTS)


def test_without_noise_the_network_comes_back_bit_for_bit(network: Residual, snapshot: Snapshot) -> None:
    for balanced in (False, True):
        result = denoise_branches(network, INPUTS, noise_variance=0.0, balanced_classes=balanced).model
        assert result is not network
        assert snapshot(result.state_dict()) == snapshot(network.state_dict())


def test_branches_are_mmse_by_layer_and_the_head_is_as_it_came(network: Residual) -> None:
    result = denoise_branches(network, INPUTS, noise_variance=0.02).model
    by_layer = quietnn.denoise(network, noise_variance=0.02, groups="layerwise").model
    assert torch.equal(result.branches[1].weight, by_layer.branches[1].weight)
    assert torch.equal(result.head.weight, network.head.weight)
    assert torch.equal(result.head.bias, network.head.bias)


def test_the_model_and_its_mode_stay_as_they_are(network: Residual, snapshot: Snapshot) -> None:
    network.train()
    before = snapshot(network.state_dict())
    result = denoise_branches(network, INPUTS, noise_variance=0.02, balanced_classes=True).model
    assert snapshot(network.state_dict()) == before
    assert network.training
    assert result.training
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in result.modules())


def test_a_preference_that_noise_made_is_taken_out(network: Residual) -> None:
    noisy = copy.deepcopy(network)
    with torch.no_grad():
        noisy.branches[0].weight.add_(torch.randn(16, 16, generator=torch.Generator().manual_seed(2)))
        noisy.head.bias.copy_(torch.tensor([2.0, 0.0, 0.0]))
    plain = denoise_branches(noisy, INPUTS, noise_variance=1.0).model
    assert shares(plain)[0] > 0.9
    balanced = denoise_branches(noisy, INPUTS, noise_variance=1.0, balanced_classes=True).model
    with torch.no_grad():
        means = balanced(INPUTS).mean(0)
    assert float((means - means.mean()).abs().max()) < 0.1
    assert float(shares(balanced).max()) < 0.6


def test_a_preference_that_weak_noise_cannot_have_made_stays(network: Residual) -> None:
    with torch.no_grad():
        network.head.bias.copy_(torch.tensor([2.0, 0.0, 0.0]))
    balanced = denoise_branches(network, INPUTS, noise_variance=1e-8, balanced_classes=True).model
    assert torch.allclose(balanced.head.bias, network.head.bias, atol=0.01)


def test_a_gate_that_is_closed_does_not_count_as_noise(network: Residual) -> None:
    class Gated(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(16, 16)

        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs + self.gate(inputs))

    torch.manual_seed(0)
    gated = Gated().eval()
    with torch.no_grad():
        for one in gated.gate.parameters():
            one.zero_()
        gated.head.bias.copy_(torch.tensor([2.0, 0.0, 0.0]))
    balanced = denoise_branches(gated, INPUTS, noise_variance=1e-8, balanced_classes=True).model
    assert torch.allclose(balanced.head.bias, gated.head.bias, atol=0.01)


def test_noise_by_layer_is_each_layers_own(network: Residual) -> None:
    noise = {**{f"branches.{index}": 1e-9 for index in range(4)}, "branches.2": 0.05, "head": 1e-9}
    result = denoise_branches(network, INPUTS, noise_variance=noise, balanced_classes=True).model
    assert torch.allclose(result.branches[0].weight, network.branches[0].weight, atol=1e-6)
    assert not torch.allclose(result.branches[2].weight, network.branches[2].weight, atol=1e-3)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(16, 3)),
        nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)),
        nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.LayerNorm(8), nn.Linear(8, 3)),
    ],
)
def test_networks_of_another_kind_are_refused_with_a_remedy(model: nn.Module) -> None:
    with pytest.raises(InvalidConfig, match="use calibrate where there is BatchNorm, denoise elsewhere"):
        denoise_branches(model.eval(), INPUTS, noise_variance=0.01)


def test_a_network_without_a_linear_head_cannot_be_centred() -> None:
    model = nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8)).eval()
    assert denoise_branches(model, INPUTS, noise_variance=0.01).model[0].weight.shape == (8, 16)
    with pytest.raises(InvalidConfig, match="does not end in one"):
        denoise_branches(model, INPUTS, noise_variance=0.01, balanced_classes=True)


def test_a_head_that_is_called_by_keyword_is_centred(network: Residual) -> None:
    class ByKeyword(Residual):
        def forward(self, inputs: Tensor) -> Tensor:
            for branch, norm in zip(self.branches, self.norms, strict=True):
                inputs = norm(input=inputs + torch.tanh(branch(input=inputs)))
            out: Tensor = self.head(input=inputs)
            return out

    other = ByKeyword()
    other.load_state_dict(network.state_dict())
    mine, its = (
        denoise_branches(one, INPUTS, noise_variance=1.0, balanced_classes=True).model for one in (network, other)
    )
    assert torch.equal(mine.head.bias, its.head.bias)
    assert not torch.equal(mine.head.bias, network.head.bias)


def test_one_input_and_outputs_that_are_not_finite_are_refused(network: Residual) -> None:
    with pytest.raises(InvalidConfig, match="1 input cannot show"):
        denoise_branches(network, INPUTS[:1], noise_variance=0.01, balanced_classes=True)
    with torch.no_grad():
        network.head.weight.fill_(3e38)
    with pytest.raises(InvalidWeights, match="outputs are not finite"):
        denoise_branches(network, INPUTS, noise_variance=0.01, balanced_classes=True)


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
