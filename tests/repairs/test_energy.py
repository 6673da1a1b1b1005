"""Layers that have the energy of clean ones."""

import copy
import math
from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import quietnn
from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.repairs.energy import energy_factor

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]
NOISE = 0.09


def restored(model: nn.Module, inputs: object, noise: object) -> nn.Module:
    return quietnn.repair(model, inputs, method="energy", noise_variance=noise).model


def noisy(model: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    result = copy.deepcopy(model)
    with torch.no_grad():
        for name in quietnn.noisy_names(result):
            tensor = result.get_parameter(name)
            tensor.add_(math.sqrt(NOISE) * torch.randn(tensor.shape, generator=generator))
    return result


class Tokens(nn.Module):
    """An embedding and a convolution in front of a LayerNorm; behind it a layer that is called twice, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mixed = nn.Embedding(50, 64), nn.Conv1d(64, 96, 3, padding=1, groups=2)
        self.norm, self.twice, self.head = nn.LayerNorm(96), nn.Linear(96, 96), nn.Linear(96, 3)

    def forward(self, ids: Tensor) -> Tensor:
        tokens = self.norm(self.mixed(self.words(ids).transpose(1, 2)).transpose(1, 2))
        return self.head(self.twice(input=self.twice(tokens).relu()).mean(1))


def energies(model: nn.Module, inputs: Tensor, fed: nn.Module) -> dict[str, float]:
    """The energy that layers of one network make of what those of another are given."""
    found: dict[str, float] = {}
    layers = dict(model.named_modules())

    def after(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> None:
            made = layers[name](*args, **kwargs) if model is not fed else output
            found[name] = found.get(name, 0.0) + float(made.square().sum())

        return hook

    handles = [
        layer.register_forward_hook(after(name), with_kwargs=True)
        for name, layer in fed.named_modules()
        if name in ("words", "mixed")
    ]
    with torch.no_grad():
        fed(inputs)
    for handle in handles:
        handle.remove()
    return found


def test_each_layer_makes_what_the_clean_one_makes_of_the_same_inputs() -> None:
    torch.manual_seed(0)
    clean, ids = Tokens().eval(), torch.randint(50, (40, 12))
    with torch.no_grad():  # signals that are stronger than the noise
        for parameter in (clean.words.weight, clean.mixed.weight):
            parameter.copy_(0.6 * torch.randn(parameter.shape))
    received = noisy(clean)
    repaired = restored(received, ids, NOISE)
    wanted, before, after = (energies(model, ids, received) for model in (clean, received, repaired))
    for name, energy in wanted.items():
        assert before[name] > 1.15 * energy
        assert after[name] == pytest.approx(energy, rel=0.06)
    assert torch.equal(repaired.twice.weight, received.twice.weight)  # no normalisation is behind it
    assert torch.equal(repaired.head.weight, received.head.weight)


def test_noise_by_tensor_and_by_weight_counts_where_it_is() -> None:
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)), torch.rand(20, 4)
    noise = {"0.weight": torch.full((8, 4), 0.01), "0.bias": 0.01, "2": 0.0}
    repaired = restored(model, inputs, noise)
    everywhere = restored(model, inputs, 0.01)
    assert torch.equal(repaired[2].weight, model[2].weight)
    assert torch.allclose(repaired[0].weight, everywhere[0].weight, rtol=1e-5)
    assert not torch.equal(repaired[0].weight, model[0].weight)


def test_a_layer_of_noise_alone_is_not_silenced() -> None:
    torch.manual_seed(0)
    silent = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 3))
    nn.init.zeros_(silent[0].weight)
    repaired = restored(noisy(silent), torch.rand(50, 16), NOISE)
    assert float(repaired[0].weight.detach().abs().max()) > 0.05


def test_shared_and_unknown_layers_and_the_network_given_stay_as_they_are(snapshot: Snapshot) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm, self.norm = nn.Embedding(9, 8), nn.LSTM(8, 8), nn.LayerNorm(8)
            self.head = nn.Linear(8, 9, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.norm(self.lstm(self.words(ids))[0]))

    model = Shared().train()
    before = snapshot(model.state_dict())
    repaired = restored(model, torch.arange(9).reshape(3, 3), 0.01)
    assert snapshot(repaired.state_dict()) == before == snapshot(model.state_dict())
    assert model.training
    assert repaired.head.weight is repaired.words.weight


def test_the_layers_of_transformers_are_known() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=16, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model = noisy(model)
    repaired = restored(model, {"input_ids": torch.arange(8)[None]}, NOISE)
    changed = {
        name for name, tensor in repaired.named_parameters() if not torch.equal(tensor, model.get_parameter(name))
    }
    assert {name for name in changed if name.endswith("weight")} == {
        "transformer.wpe.weight", "transformer.h.0.attn.c_proj.weight", "transformer.h.0.mlp.c_proj.weight"
    }  # fmt: skip


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU(), nn.Tanh(), nn.Identity()])
def test_a_layer_in_front_of_an_activation_stays_as_it_came(activation: nn.Module) -> None:
    torch.manual_seed(0)
    model = noisy(nn.Sequential(nn.Linear(8, 16), activation, nn.Linear(16, 16), nn.LayerNorm(16)))
    repaired = restored(model, torch.rand(50, 8), NOISE)
    assert torch.equal(repaired[0].weight, model[0].weight) == (not isinstance(activation, nn.Identity))
    assert not torch.equal(repaired[2].weight, model[2].weight)


@pytest.mark.parametrize("norm_first", [True, False])
def test_of_torchs_attention_the_values_and_the_last_layer_are_restored(norm_first: bool) -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first)
    clean = nn.Sequential(block, nn.LayerNorm(32), nn.Linear(32, 3)).eval()
    with torch.no_grad():
        block.self_attn.in_proj_weight.copy_(0.6 * torch.randn(96, 32))
    received, inputs = noisy(clean), torch.randn(30, 5, 32)
    repaired = restored(received, inputs, NOISE)
    before, after = (model[0].self_attn.in_proj_weight.detach() for model in (received, repaired))
    assert torch.equal(before[:64], after[:64])  # queries and keys meet in a softmax
    factor = float((after[64:] / before[64:]).mean())
    assert torch.allclose(after[64:], factor * before[64:])
    share = float(before[64:].var()) - NOISE
    assert factor**2 == pytest.approx(share / float(before[64:].var()), abs=0.1)
    assert not torch.equal(repaired[0].self_attn.out_proj.weight, received[0].self_attn.out_proj.weight)
    assert torch.equal(repaired[0].linear1.weight, received[0].linear1.weight)
    assert not torch.equal(repaired[0].linear2.weight, received[0].linear2.weight)


def test_without_noise_nothing_changes(snapshot: Snapshot) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
    same = restored(model, torch.rand(5, 4), 0.0)
    assert snapshot(same.state_dict()) == snapshot(model.state_dict())


def test_what_is_not_finite_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
    with pytest.raises(QuietnnError, match="not finite"):
        restored(model, torch.full((2, 4), math.nan), 0.1)
    nn.init.constant_(model[0].weight, 3e38)
    with pytest.raises(InvalidWeights, match="what enters a normalisation is not finite"):
        restored(model, torch.ones(2, 4), 0.1)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_the_squared_error_of_a_layer_never_grows(signal: float, noise: float) -> None:
    """`(1 - a)^2 S + a^2 N` against `N`, with the factor of the closed form."""
    factor = energy_factor(signal + noise, noise, width=10**9)
    share = signal / (signal + noise)
    error = (1 - factor) ** 2 * signal + factor**2 * noise
    assert error <= noise * (1 + 1e-9)
    assert error == pytest.approx(2 * share / (1 + math.sqrt(share)) * noise, rel=1e-4)
