"""The scale of logits behind a noisy head."""

import pytest
import torch
from tests.small_language_models import FAMILIES
from torch import Tensor, nn

import quietnn
from quietnn.batches import outputs_of
from quietnn.errors import InvalidWeights
from quietnn.repairs.directions import denoise_directions
from quietnn.repairs.logits import NoisyHead, noisy_head
from quietnn.weights import NORMALISATION_TYPES

_VOCABULARY, _WIDTH = 400, 16


class _AddsOne(nn.Module):
    """Normalises as Gemma does: the gain is one plus the weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-0.5, 0.5, width))

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (1.0 + self.weight)


class _Gemma3RMSNorm(_AddsOne):
    pass


class _Model(nn.Module):
    """A block between an embedding and a head."""

    def __init__(self, norm: nn.Module, *, tied: bool = False, bias: bool = False, num_outputs: int = _VOCABULARY):
        super().__init__()
        self.embed = nn.Embedding(_VOCABULARY, _WIDTH)
        self.before, self.branch, self.norm = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), norm
        self.head = nn.Linear(_WIDTH, num_outputs, bias=bias)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.head(self.norm(x + self.branch(self.before(x))))  # type: ignore[no-any-return]


def _model(norm: nn.Module | None = None, seed: int = 0, **kind: bool | int) -> _Model:
    torch.manual_seed(seed)
    return _Model(nn.LayerNorm(_WIDTH) if norm is None else norm, **kind).eval()  # type: ignore[arg-type]


def _tokens() -> Tensor:
    return torch.randint(_VOCABULARY, (6, 20), generator=torch.Generator().manual_seed(1))


def _entered(model: _Model) -> Tensor:
    x = model.embed(_tokens())
    return model.norm(x + model.branch(model.before(x))).flatten(0, 1).detach()


def _seen(head: NoisyHead, model: _Model) -> float:
    with torch.no_grad(), head.watched():
        model(_tokens())
    return head.factor


@pytest.mark.parametrize("by_weight", [False, True])
def test_the_factor_is_that_of_the_logits_themselves(by_weight: bool) -> None:
    model = _model(bias=True)
    weight = model.head.weight.detach()
    noise = 0.01 + 0.02 * torch.rand(weight.shape) if by_weight else 0.01
    head = noisy_head(model, {"head.weight": weight}, {"head.weight": noise})
    assert head is not None
    entered = _entered(model)
    seen = (entered @ weight.T).var(1)
    made = (entered.square() * torch.as_tensor(noise).expand_as(weight).amin(0)).sum(1)
    assert 0.1 < head_factor(seen, made) < 0.95
    assert _seen(head, model) == pytest.approx(head_factor(seen, made), rel=1e-4)


def head_factor(seen: Tensor, made: Tensor) -> float:
    return float(((seen - made).clamp_min(0.0) / seen).mean())


def test_a_few_rows_with_more_noise_hold_nothing_back() -> None:
    model = _model()
    weight = model.head.weight.detach()
    noise = torch.full((_VOCABULARY, 1), 0.001)
    alike = noisy_head(model, {"head.weight": weight}, {"head.weight": noise})
    noise = noise.clone()
    noise[:20] = 10.0
    differing = noisy_head(model, {"head.weight": weight}, {"head.weight": noise})
    assert alike is not None
    assert differing is not None
    assert _seen(differing, model) == _seen(alike, model)


@pytest.mark.parametrize("seed", range(3))
def test_logits_come_nearer_to_the_clean_ones(seed: int) -> None:
    clean = _model(seed=seed)
    names = ("head.weight",)
    noisy = quietnn.transmit(clean, wnr_db=0.0, seed=seed, noisy=names)
    repaired = denoise_directions(noisy, _tokens())
    assert repaired.details["logits_factor"] == pytest.approx(0.5, abs=0.1)
    with torch.no_grad():
        error, was = (
            float((outputs_of(one, _tokens()) - clean(_tokens())).square().mean())
            for one in (repaired.model, noisy.model)
        )
    assert error < 0.6 * was


def test_a_head_of_its_own_weights_is_scaled_and_its_bias_stays() -> None:
    noisy = quietnn.transmit(_model(bias=True), wnr_db=3.0, seed=2)
    before, repaired = noisy.model, denoise_directions(noisy, _tokens())
    factor = repaired.details["logits_factor"]
    torch.testing.assert_close(repaired.model.head.weight, factor * before.head.weight)
    assert torch.equal(repaired.model.head.bias, before.head.bias)
    assert torch.equal(repaired.model.norm.weight, before.norm.weight)


@pytest.mark.parametrize("norm", [nn.LayerNorm(_WIDTH), nn.RMSNorm(_WIDTH), _Gemma3RMSNorm(_WIDTH)])
def test_a_tied_head_stays_and_the_last_normalisation_is_scaled(norm: nn.Module) -> None:
    for parameter in norm.parameters():
        nn.init.normal_(parameter, 0.2, 0.5, generator=torch.Generator().manual_seed(4))
    noisy = quietnn.transmit(_model(norm, tied=True, bias=True), wnr_db=3.0, seed=2)
    unscaled = denoise_directions(noisy, _tokens(), scale_logits=False)
    scaled = denoise_directions(noisy, _tokens())
    factor = scaled.details["logits_factor"]
    assert 0.3 < factor < 0.9
    assert "logits_factor" not in unscaled.details
    assert torch.equal(scaled.model.embed.weight, noisy.model.embed.weight)
    torch.testing.assert_close(_entered(scaled.model), factor * _entered(unscaled.model), rtol=1e-4, atol=1e-5)


def test_a_normalisation_that_others_use_too_stays() -> None:
    model = _model(tied=True)
    model.before = model.norm  # type: ignore[assignment]
    noisy = quietnn.transmit(model, wnr_db=3.0, seed=2)
    repaired = denoise_directions(noisy, _tokens())
    assert torch.equal(repaired.model.norm.weight, noisy.model.norm.weight)
    assert torch.equal(repaired.model.norm.bias, noisy.model.norm.bias)
    assert "logits_factor" not in repaired.details


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_without_noise_changes_no_bit(tied: bool) -> None:
    model = _model(tied=tied)
    repaired = denoise_directions(quietnn.observe(model, noise_variance=0.01, noisy=["branch.weight"]), _tokens())
    assert not torch.equal(repaired.model.branch.weight, model.branch.weight)
    for name in ("embed", "norm", "head"):
        assert torch.equal(getattr(repaired.model, name).weight, getattr(model, name).weight)


def test_few_outputs_keep_their_scale() -> None:
    noisy = quietnn.transmit(_model(num_outputs=5, bias=True), wnr_db=0.0, seed=1)
    repaired = denoise_directions(noisy, _tokens())
    assert torch.equal(repaired.model.head.weight, noisy.model.head.weight)
    assert torch.equal(repaired.model.norm.weight, noisy.model.norm.weight)
    assert not repaired.details


def test_what_is_not_finite_is_refused() -> None:
    model = _model()
    head = noisy_head(model, {"head.weight": model.head.weight.detach()}, {"head.weight": 0.1})
    assert head is not None
    with head.watched():
        model.head(torch.full((1, _WIDTH), torch.inf))
    with pytest.raises(InvalidWeights, match="not finite"):
        head.scale(model, _tokens(), NORMALISATION_TYPES)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_networks_of_transformers(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    config_name, model_name, settings = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(vocab_size=90, decoder_start_token_id=0, pad_token_id=0, **settings)
    model = getattr(transformers, model_name)(config).eval()
    tokens = torch.randint(1, 90, (4, 12))
    inputs = {"input_ids": tokens, **({"decoder_input_ids": tokens} if family == "t5" else {})}
    noisy = quietnn.transmit(model, wnr_db=6.0, seed=1)
    plain, scaled = (denoise_directions(noisy, inputs, scale_logits=wanted) for wanted in (False, True))
    factor = scaled.details["logits_factor"]
    assert 0.3 < factor < 1.0
    with torch.no_grad():
        expected, found = factor * outputs_of(plain.model, inputs), outputs_of(scaled.model, inputs)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3 * float(expected.std()))
