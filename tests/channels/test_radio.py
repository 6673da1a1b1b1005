"""The built-in radio link: every weight's noise is as the receiver was told."""

import math

import pytest
import torch
from torch import Tensor

from quietnn.channels.radio import BlockFading
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.noise import mean_noise
from quietnn.observation import observe
from quietnn.repairs.denoise import denoise


def squared_over_told(link: BlockFading, shapes: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Each weight's squared error over the variance that the receiver was told; 1 on average."""
    observation = link.transmit(shapes, seed=seed)
    assert isinstance(observation.noise_variance, dict)
    return {
        name: (observation.received[name] - tensor).double().square() / observation.noise_variance[name]
        for name, tensor in shapes.items()
    }


@pytest.mark.parametrize("wnr_db", [0.0, 10.0, 25.0])
@pytest.mark.parametrize("num_pilots", [0, 4, 32])
def test_the_noise_variance_of_a_weight_is_as_told(wnr_db: float, num_pilots: int, shapes: dict[str, Tensor]) -> None:
    link = BlockFading(wnr_db, block=64, num_pilots=num_pilots)
    ratios = [squared_over_told(link, shapes, seed) for seed in range(3)]
    for name in shapes:
        assert float(torch.cat([ratio[name] for ratio in ratios]).mean()) == pytest.approx(1.0, rel=0.05)


def test_fades_are_those_of_a_rayleigh_channel(shapes: dict[str, Tensor]) -> None:
    """With a known coefficient the told variance is sigma_w^2 N_0 / |h|^2, and |h|^2 is exponential of mean 1."""
    observation = BlockFading(10.0, block=4, num_pilots=0).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    std = BlockFading(10.0).settled(shapes).std
    power = torch.cat([torch.as_tensor(v).flatten()[::8] for v in observation.noise_variance.values()]) / (0.1 * std**2)
    gains = 1 / power
    assert float(gains.mean()) == pytest.approx(1.0, rel=0.05)
    assert float((gains < 0.1).double().mean()) == pytest.approx(1 - math.exp(-0.1), rel=0.15)


def test_a_block_shares_its_fade_and_tensors_do_not(shapes: dict[str, Tensor]) -> None:
    observation = BlockFading(10.0, block=100).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    noise = torch.as_tensor(observation.noise_variance["gaussian"]).flatten()
    assert noise[:200].unique().numel() == 1
    assert noise[200] != noise[199]
    other = torch.as_tensor(observation.noise_variance["uniform"]).flatten()
    assert noise[0] != other[0]


def test_knowing_each_weight_s_noise_helps(shapes: dict[str, Tensor]) -> None:
    observation = BlockFading(6.0, block=64).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    told = denoise(observe(observation.received, noise_variance=observation.noise_variance, noisy=list(shapes))).model
    mean = mean_noise(observation.noise_variance, shapes)
    flat = denoise(observe(observation.received, noise_variance=mean, noisy=list(shapes))).model

    def error(estimate: dict[str, Tensor]) -> float:
        return sum(float((estimate[name] - tensor).double().square().sum()) for name, tensor in shapes.items())

    assert error(told) < 0.5 * error(flat)
    assert error(told) < 0.1 * error(observation.received)


def test_the_order_of_tensors_does_not_matter(shapes: dict[str, Tensor]) -> None:
    turned = dict(reversed(shapes.items()))
    one, other = (BlockFading(10.0).transmit(weights, seed=1).received for weights in (shapes, turned))
    assert all(torch.allclose(one[name], other[name], rtol=1e-5, atol=1e-7) for name in shapes)


def test_channel_uses_count_pilots() -> None:
    assert (
        BlockFading(10.0, block=4, num_pilots=2).rate({"a": torch.zeros(9), "b": torch.zeros(2)})
        == 2 * (5 + 1 + 6) / 11
    )
    assert BlockFading(10.0, block=4, num_pilots=2).rate({"a": torch.zeros(16)}) == 1.5
    assert BlockFading(10.0).rate({}) == 1.0


def test_the_lowest_ratio_has_finite_noise(shapes: dict[str, Tensor]) -> None:
    observation = BlockFading(-100.0).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    assert all(torch.isfinite(torch.as_tensor(noise)).all() for noise in observation.noise_variance.values())
    assert all(torch.isfinite(tensor).all() for tensor in observation.received.values())


def test_bad_settings_are_refused() -> None:
    for block in (0, 2.5, math.nan, "64"):
        with pytest.raises(InvalidConfig, match=r"block is .*; give a whole number, 1 to 2147483648"):
            BlockFading(10.0, block=block)  # type: ignore[arg-type]
    for num_pilots in (-1, 2.5, math.nan):
        with pytest.raises(InvalidConfig, match=r"num_pilots is .*; give a whole number, 0 to"):
            BlockFading(10.0, num_pilots=num_pilots)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match=r"-400.0; nothing arrives at so low a ratio, give -100 or more"):
        BlockFading(-400.0)
    with pytest.raises(InvalidConfig, match="wnr_db is '10'; give a number of decibels"):
        BlockFading("10")  # type: ignore[arg-type]
    with pytest.raises(InvalidWeights, match="all the same"):
        BlockFading(10.0).transmit({"w": torch.ones(4)}, seed=0)
