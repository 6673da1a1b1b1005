"""Each piece of the fading channel has the moments it claims, and the air the noise it claims."""

import math

import pytest
import torch
from torch import Tensor

from quietnn.channels.awgn import AWGN
from quietnn.errors import InvalidConfig
from quietnn.federated.air import Air, ChannelInversion, Dropout, Gains, PhaseAlignment, exponential_integral, superpose

PIECES: list[Gains] = [
    PhaseAlignment(),
    ChannelInversion(power_cap=2.0),
    ChannelInversion(csi_error=0.1, power_cap=5.0),
    ChannelInversion(csi_error=0.5, power_cap=1.0),
    Dropout(0.3),
    Dropout(1.0),
]


def draws(piece: Gains, num_draws: int = 2500, num_entries: int = 7) -> Tensor:
    """One entry of the gain of many devices, each in a round of its own."""
    found = [piece.draw(num_entries, device=i % 20, round_number=i, seed=5) for i in range(num_draws)]
    return torch.tensor([float(gain[3]) if isinstance(gain, Tensor) else gain for gain in found], dtype=torch.float64)


@pytest.mark.parametrize("piece", PIECES, ids=str)
def test_gains_have_the_moments_that_were_derived(piece: Gains) -> None:
    gains = draws(piece)
    for power, claimed in ((1, piece.mean), (2, piece.second_moment)):
        sample = gains**power
        error = float(sample.std()) / math.sqrt(len(sample))
        assert abs(float(sample.mean()) - claimed) < 4 * error + 1e-12


def test_a_device_that_vanishes_leaves_one_stretch_of_the_shared_cycle() -> None:
    piece = Dropout(1.0)
    gains = [piece.draw(100, device=device, round_number=2, seed=0) for device in range(5)]
    starts = []
    for gain in gains:
        assert isinstance(gain, Tensor)
        turns = (gain != gain.roll(1)).nonzero().flatten().tolist()
        assert len(turns) == 2
        starts.append(next(turn for turn in turns if gain[turn] == 1))
    assert len(set(starts)) == 1


def test_imperfect_inversion_without_a_cap_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="infinite variance"):
        ChannelInversion(csi_error=0.1)
    for wrong in ({"csi_error": 1.0, "power_cap": 1.0}, {"power_cap": 0.0}, {"power_cap": 1e-3}):
        with pytest.raises(InvalidConfig):
            ChannelInversion(**wrong)
    with pytest.raises(InvalidConfig, match="between 0 and 1"):
        Dropout(1.5)


E_1 = {1e-6: 13.23829589306249, 0.1: 1.8229239584193906, 1.0: 0.21938393439552, 20.0: 9.835525290649882e-11}


@pytest.mark.parametrize(("x", "value"), E_1.items())
def test_the_exponential_integral(x: float, value: float) -> None:
    assert exponential_integral(x) == pytest.approx(value, rel=1e-8)


def updates(num_devices: int = 4, num_entries: int = 60_000, *, power: float = 1.0) -> dict[int, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    common = torch.randn(num_entries, generator=generator)  # devices agree in part, as they do in training
    return {
        device: {"w": power * (0.5 * common + torch.randn(num_entries, generator=generator))}
        for device in range(num_devices)
    }


@pytest.mark.parametrize(
    "gains",
    [
        (),
        (ChannelInversion(),),
        (ChannelInversion(power_cap=2.0),),
        (ChannelInversion(csi_error=0.05, power_cap=8.0), Dropout(0.2)),
        (PhaseAlignment(),),
    ],
    ids=str,
)
def test_the_effective_noise_has_the_variance_that_was_derived(gains: tuple[Gains, ...]) -> None:
    sent = updates(num_entries=500)
    total = superpose(sent)["w"].double()
    air = Air(AWGN(noise_variance=0.5), gains)
    errors, claimed = [], 0.0
    for number in range(400):
        observation = air.receive(sent, round_number=number, seed=3)
        errors.append(float((observation.received["w"].double() - total).square().mean()))
        claimed = observation.noise_variance
    mean, error = torch.tensor(errors).mean(), torch.tensor(errors).std() / math.sqrt(len(errors))
    assert abs(float(mean) - claimed) < 4 * float(error) + 0.01 * claimed * (not gains)


def test_gaussian_and_perfectly_inverted_fading_agree_in_distribution() -> None:
    sent = updates()
    total = superpose(sent)["w"].double()
    plain, inverted = Air(AWGN(wnr_db=-3.0)), Air(AWGN(wnr_db=-3.0), (ChannelInversion(),))
    noises = []
    for air, seed in ((plain, 1), (inverted, 2)):
        observation = air.receive(sent, round_number=0, seed=seed)
        noise = (observation.received["w"].double() - total) / math.sqrt(observation.noise_variance)
        assert observation.noise_variance == pytest.approx(float(total.var(correction=0)) * 10**0.3, rel=1e-6)
        noises.append(noise)
    num = len(total)
    for noise in noises:
        for moment, expected, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):  # of a standard normal
            assert abs(float((noise**moment).mean()) - expected) < 4 * math.sqrt(spread / num)
        assert abs(float((noise * total).mean())) < 4 * float(total.std()) / math.sqrt(num)
    assert abs(float((noises[0] * noises[1]).mean())) < 4 / math.sqrt(num)


def test_the_sum_does_not_depend_on_the_order_of_the_devices() -> None:
    sent = updates(7)
    backwards = dict(reversed(sent.items()))
    assert torch.equal(superpose(sent)["w"], superpose(backwards)["w"])
    with pytest.raises(InvalidConfig, match="at least one"):
        superpose({})


def test_a_round_in_which_every_device_is_silent_delivers_nothing() -> None:
    air = Air(AWGN(wnr_db=0.0), (ChannelInversion(power_cap=0.1),))
    observation = air.receive(updates(2, 10), round_number=0, seed=0)
    assert observation.received["w"].abs().max() == 0
