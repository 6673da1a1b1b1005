"""Training through noise: the noise has the right power, and gradients reach the clean weights."""

import torch
from torch import nn

from quietnn.tasks.noise_injection import noisy_logits


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(200, 300, bias=False), nn.LayerNorm(300))


def test_the_noise_has_the_power_of_the_wnr_and_spares_normalisation() -> None:
    model, inputs = network(), torch.eye(200)
    model[1].weight.data.fill_(1.0)
    weight = model[0].weight
    linear = nn.Sequential(model[0])
    noise = (noisy_logits(linear, inputs, wnr_db=3.0) - linear(inputs)).detach()
    measured = float(noise.var()) / float(weight.detach().var())
    assert abs(measured / 10**-0.3 - 1.0) < 0.02
    with torch.no_grad():
        model[0].weight.zero_()
    assert torch.equal(noisy_logits(model, inputs, wnr_db=3.0), model(inputs)), "no power, no noise; LayerNorm has none"


def test_without_noise_it_is_the_plain_forward_pass_and_gradients_flow() -> None:
    model, inputs = network(), torch.randn(4, 200)
    assert torch.equal(noisy_logits(model, inputs, wnr_db=float("inf")), model(inputs))
    noisy_logits(model, inputs, wnr_db=0.0).square().sum().backward()
    gradient = model[0].weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


def test_the_clean_weights_are_not_moved_by_the_noise() -> None:
    model = network()
    before = model[0].weight.detach().clone()
    noisy_logits(model, torch.randn(2, 200), wnr_db=-10.0)
    assert torch.equal(model[0].weight, before)
