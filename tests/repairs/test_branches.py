"""Networks that normalise each input: branches by MMSE, and a head that noise gave a preference."""

import copy
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.repairs.branches import denoise_branches

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
        result = denoise_branches(network, INPUTS, noise_variance=0.0, balanced_classes=balanced)
        assert result is not network
        assert snapshot(result.state_dict()) == snapshot(network.state_dict())


def test_branches_are_mmse_by_layer_and_the_head_is_as_it_came(network: Residual) -> None:
    result = denoise_branches(network, INPUTS, noise_variance=0.02)
    by_layer = quietnn.denoise(network, noise_variance=0.02, groups="layerwise")
    assert torch.equal(result.branches[1].weight, by_layer.branches[1].weight)
    assert torch.equal(result.head.weight, network.head.weight)
    assert torch.equal(result.head.bias, network.head.bias)


def test_the_model_and_its_mode_stay_as_they_are(network: Residual, snapshot: Snapshot) -> None:
    network.train()
    before = snapshot(network.state_dict())
    result = denoise_branches(network, INPUTS, noise_variance=0.02, balanced_classes=True)
    assert snapshot(network.state_dict()) == before
    assert network.training
    assert result.training
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in result.modules())


def test_a_preference_that_noise_made_is_taken_out(network: Residual) -> None:
    noisy = copy.deepcopy(network)
    with torch.no_grad():
        noisy.branches[0].weight.add_(torch.randn(16, 16, generator=torch.Generator().manual_seed(2)))
        noisy.head.bias.copy_(torch.tensor([2.0, 0.0, 0.0]))
    plain = denoise_branches(noisy, INPUTS, noise_variance=1.0)
    assert shares(plain)[0] > 0.9
    balanced = denoise_branches(noisy, INPUTS, noise_variance=1.0, balanced_classes=True)
    with torch.no_grad():
        means = balanced(INPUTS).mean(0)
    assert float((means - means.mean()).abs().max()) < 0.1
    assert float(shares(balanced).max()) < 0.6


def test_a_preference_that_weak_noise_cannot_have_made_stays(network: Residual) -> None:
    with torch.no_grad():
        network.head.bias.copy_(torch.tensor([2.0, 0.0, 0.0]))
    balanced = denoise_branches(network, INPUTS, noise_variance=1e-8, balanced_classes=True)
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
    balanced = denoise_branches(gated, INPUTS, noise_variance=1e-8, balanced_classes=True)
    assert torch.allclose(balanced.head.bias, gated.head.bias, atol=0.01)


def test_noise_by_layer_is_each_layers_own(network: Residual) -> None:
    noise = {**{f"branches.{index}": 1e-9 for index in range(4)}, "branches.2": 0.05, "head": 1e-9}
    result = denoise_branches(network, INPUTS, noise_variance=noise, balanced_classes=True)
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
    assert denoise_branches(model, INPUTS, noise_variance=0.01)[0].weight.shape == (8, 16)
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
    mine, its = (denoise_branches(one, INPUTS, noise_variance=1.0, balanced_classes=True) for one in (network, other))
    assert torch.equal(mine.head.bias, its.head.bias)
    assert not torch.equal(mine.head.bias, network.head.bias)


def test_one_input_and_outputs_that_are_not_finite_are_refused(network: Residual) -> None:
    with pytest.raises(InvalidConfig, match="1 input cannot show"):
        denoise_branches(network, INPUTS[:1], noise_variance=0.01, balanced_classes=True)
    with torch.no_grad():
        network.head.weight.fill_(3e38)
    with pytest.raises(InvalidWeights, match="outputs are not finite"):
        denoise_branches(network, INPUTS, noise_variance=0.01, balanced_classes=True)
