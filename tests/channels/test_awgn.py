"""White Gaussian noise of one variance, given as such or by the weight-to-noise ratio."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.channels.awgn import AWGN, Power, add_noise
from quietnn.channels.randomness import BLOCK, standard_normal
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def weights(mean: float = 0.3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "a": torch.randn(300, 400, generator=generator) * 0.1 + mean,
        "b": torch.randn(70_001, generator=generator) * 0.2 + mean,
    }


@pytest.mark.parametrize("wnr_db", [-10.0, 0.0, 20.0])
@pytest.mark.parametrize("power", list(Power))
def test_the_noise_has_the_power_that_the_wnr_asks_for(wnr_db: float, power: Power) -> None:
    sent = weights()
    values = torch.cat([tensor.flatten() for tensor in sent.values()]).double()
    signal = values.var(correction=0) if power is Power.VARIANCE else values.square().mean()
    observation = AWGN(wnr_db=wnr_db, power=power).transmit(sent, seed=1)
    assert observation.noise_variance == pytest.approx(signal.item() / 10 ** (wnr_db / 10), rel=1e-7)
    noise = torch.cat([(observation.received[name] - sent[name]).flatten() for name in sent]).double()
    assert noise.var().item() == pytest.approx(observation.noise_variance, rel=4 * (2 / len(noise)) ** 0.5)
    assert noise.mean().item() == pytest.approx(0.0, abs=4 * (observation.noise_variance / len(noise)) ** 0.5)


def test_the_two_conventions_differ_by_the_mean() -> None:
    by_variance = AWGN(wnr_db=0.0).variance_for(weights(mean=3.0))
    by_second_moment = AWGN(wnr_db=0.0, power="second-moment").variance_for(weights(mean=3.0))
    assert by_second_moment - by_variance == pytest.approx(9.0, rel=1e-2)


def test_every_tensor_gets_the_same_variance() -> None:
    sent = {"small": torch.zeros(50_000), "large": torch.randn(50_000, generator=torch.Generator().manual_seed(0))}
    received = AWGN(noise_variance=0.25).transmit(sent, seed=0).received
    for name in sent:
        assert (received[name] - sent[name]).var().item() == pytest.approx(0.25, rel=0.03)


@pytest.mark.parametrize("channel", [AWGN(wnr_db=math.inf), AWGN(noise_variance=0.0)])
def test_a_channel_without_noise_returns_a_copy(channel: AWGN, same_bits: Callable[[Tensor, Tensor], bool]) -> None:
    sent = {"w": torch.tensor([-0.0, 1e-45, 3.0])}
    observation = channel.transmit(sent, seed=0)
    assert observation.noise_variance == 0.0
    assert same_bits(observation.received["w"], sent["w"])
    assert observation.received["w"].data_ptr() != sent["w"].data_ptr()


def test_what_is_sent_stays_as_it_is(same_bits: Callable[[Tensor, Tensor], bool]) -> None:
    sent = weights()
    before = {name: tensor.clone() for name, tensor in sent.items()}
    AWGN(wnr_db=0.0).transmit(sent, seed=0)
    assert all(same_bits(sent[name], before[name]) for name in sent)


@pytest.mark.usefixtures("threads")
def test_neither_order_nor_company_nor_threads_change_the_noise() -> None:
    sent = weights()
    channel = AWGN(noise_variance=0.01)
    expected = channel.transmit(sent, seed=4).received
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        turned = channel.transmit(dict(reversed(sent.items())), seed=4).received
        alone = channel.transmit({"b": sent["b"]}, seed=4).received
        assert all(torch.equal(turned[name], expected[name]) for name in sent)
        assert torch.equal(alone["b"], expected["b"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_chunks_of_blocks_add_up_to_the_tensor(dtype: torch.dtype) -> None:
    tensor = torch.randn(2 * BLOCK + 77, generator=torch.Generator().manual_seed(0)).to(dtype)
    received = add_noise(tensor, 0.3, seed=9, name="w")
    exact = torch.promote_types(dtype, torch.float32)
    for start in range(0, tensor.numel(), BLOCK):
        chunk = tensor[start : start + BLOCK]
        noise = standard_normal(chunk.numel(), seed=9, name="w", start=start)
        by_chunk = chunk.to(exact).add(noise.to(exact), alpha=0.3).to(dtype)
        assert torch.equal(received[start : start + BLOCK], by_chunk)


def test_layout_does_not_matter() -> None:
    tensor = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    expected = add_noise(tensor, 0.3, seed=0, name="w")
    assert torch.equal(add_noise(tensor.contiguous(memory_format=torch.channels_last), 0.3, seed=0, name="w"), expected)
    assert torch.equal(add_noise(tensor.mT.contiguous().mT, 0.3, seed=0, name="w"), expected)


@given(st.integers(0, 2**70), st.integers(0, 2**70))
def test_the_seed_decides(one: int, other: int) -> None:
    same = torch.equal(*(add_noise(torch.zeros(8), 1.0, seed=seed, name="w") for seed in (one, other)))
    assert same == (one == other)


@pytest.mark.parametrize("arguments", [{}, {"wnr_db": 1.0, "noise_variance": 1.0}])
def test_exactly_one_kind_of_noise(arguments: dict[str, float]) -> None:
    with pytest.raises(QuietnnError, match=r"give exactly one, for example AWGN\(wnr_db=10.0\)"):
        AWGN(**arguments)


@pytest.mark.parametrize("wnr_db", [math.nan, -math.inf])
def test_a_wnr_that_means_nothing(wnr_db: float) -> None:
    with pytest.raises(QuietnnError, match=rf"a ratio of {wnr_db} dB has no meaning here; give a number"):
        AWGN(wnr_db=wnr_db)


@pytest.mark.parametrize("noise_variance", [math.nan, -1.0, math.inf])
def test_a_variance_that_is_none(noise_variance: float) -> None:
    with pytest.raises(QuietnnError, match=rf"noise_variance is {noise_variance}; a variance must be finite"):
        AWGN(noise_variance=noise_variance)


def test_an_unknown_power() -> None:
    with pytest.raises(InvalidConfig, match=r"power is 'energy'; choose one of variance, second-moment"):
        AWGN(wnr_db=0.0, power="energy")


@pytest.mark.parametrize("bad", [torch.tensor([1.0, math.nan]), torch.tensor([1, 2]), torch.ones(0)])
def test_weights_that_cannot_be_sent(bad: Tensor) -> None:
    with pytest.raises(InvalidWeights, match=r"^w "):
        AWGN(noise_variance=1.0).transmit({"w": bad}, seed=0)


def test_no_weights_to_measure_against() -> None:
    with pytest.raises(QuietnnError, match=r"send at least one tensor"):
        AWGN(wnr_db=0.0).transmit({}, seed=0)
