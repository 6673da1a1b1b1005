"""Noise in proportion to the largest weight."""

import pytest
import torch

import quietnn
from quietnn.channels.relative import SHARING, RelativeNoise
from quietnn.channels.table import channel_named
from quietnn.errors import InvalidConfig


@pytest.mark.parametrize("by", SHARING)
def test_the_noise_is_as_told(by: str) -> None:
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(40, 50, generator=generator) * torch.logspace(0, -2, 40)[:, None]
    draws = [RelativeNoise(0.1, by).transmit({"w": clean}, seed=seed) for seed in range(200)]
    measured = torch.stack([one.received["w"] - clean for one in draws]).square().mean(0)
    told = torch.as_tensor(draws[0].noise_variance["w"]).expand_as(clean)  # type: ignore[index]
    ratio = measured / told
    assert abs(float(ratio.mean()) - 1) < 0.01
    assert float((ratio - 1).abs().max()) < 0.6  # the error of a variance from 200 draws is a tenth


def test_a_row_has_its_own_largest_weight_and_kernels_go_with_their_row() -> None:
    clean = torch.stack([torch.ones(3, 2, 2), 4 * torch.ones(3, 2, 2)])
    noise = RelativeNoise(0.5).transmit({"w": clean}, seed=0).noise_variance["w"]  # type: ignore[index]
    assert torch.as_tensor(noise).flatten().tolist() == [0.25, 4.0]
    assert RelativeNoise(0.5).transmit({"b": torch.tensor([1.0, -2.0])}, seed=0).noise_variance["b"] == 1.0  # type: ignore[index]


def test_every_repair_is_told(tiny_net: torch.nn.Module) -> None:
    observation = quietnn.transmit(tiny_net, channel=channel_named("relative:by=column", level=0.05), seed=1)
    denoised = quietnn.denoise(observation).model
    assert not torch.equal(denoised.head.weight, observation.model.head.weight)


@pytest.mark.parametrize("settings", [{"fraction": -0.1}, {"fraction": "much"}, {"fraction": 0.1, "by": "diagonal"}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        RelativeNoise(**settings)  # type: ignore[arg-type]
