"""OFDM through Sionna's channels: every weight's noise is as the receiver was told."""

import pytest
import torch
from torch import Tensor

from quietnn.channels.radio import BlockFading
from quietnn.channels.sionna_radio import PROFILES, SionnaRadio
from quietnn.errors import InvalidConfig, MissingData


@pytest.mark.wireless
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("wnr_db", [0.0, 10.0, 25.0])
def test_the_noise_variance_of_a_weight_is_as_told(profile: str, wnr_db: float, shapes: dict[str, Tensor]) -> None:
    weights = {f"{name}{copy}": tensor for name, tensor in shapes.items() for copy in range(4)}
    observation = SionnaRadio(wnr_db, profile).transmit(weights, seed=0)
    assert isinstance(observation.noise_variance, dict)
    ratios = [
        (observation.received[name] - tensor).double().square() / observation.noise_variance[name]
        for name, tensor in weights.items()
    ]
    assert float(torch.stack(ratios).mean()) == pytest.approx(1.0, rel=0.05)


@pytest.mark.wireless
def test_rayleigh_slots_agree_with_the_built_in_link(shapes: dict[str, Tensor]) -> None:
    """The same law of fades: compare the share of weights that lie below some gains."""
    weights = {f"{name}{copy}": tensor for name, tensor in shapes.items() for copy in range(12)}
    links = SionnaRadio(20.0, "rayleigh"), BlockFading(20.0, block=864, num_pilots=144)
    gains = []
    for link in links:
        noise = link.transmit(weights, seed=0).noise_variance
        assert isinstance(noise, dict)
        gains.append(1 / torch.cat([torch.as_tensor(value).flatten() for value in noise.values()]))
    for level in (0.25, 0.5, 0.75):
        assert float(gains[0].quantile(level)) == pytest.approx(float(gains[1].quantile(level)), rel=0.25)


@pytest.mark.wireless
def test_a_delay_line_fades_over_the_subcarriers_and_awgn_does_not(shapes: dict[str, Tensor]) -> None:
    spread = {}
    for profile in ("awgn", "rayleigh", "tdl-c"):
        noise = SionnaRadio(20.0, profile, delay_spread=1e-6).transmit(shapes, seed=0).noise_variance
        assert isinstance(noise, dict)
        slot = torch.as_tensor(noise["gaussian"]).flatten()[:144]  # one OFDM symbol of one slot
        spread[profile] = float(slot.max() / slot.min())
    assert spread["awgn"] == 1.0
    assert spread["rayleigh"] == pytest.approx(1.0, rel=1e-3)
    assert spread["tdl-c"] > 3


@pytest.mark.wireless
def test_the_seed_decides_and_the_global_state_stays(shapes: dict[str, Tensor]) -> None:
    from sionna.phy import config

    config.seed = 99
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = SionnaRadio(10.0).transmit(shapes, seed=0).received["gaussian"]
    assert config.seed == 99
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(
        SionnaRadio(10.0).transmit({"gaussian": shapes["gaussian"], **shapes}, seed=0).received["gaussian"], first
    )
    assert not torch.equal(SionnaRadio(10.0).transmit(shapes, seed=1).received["gaussian"], first)


@pytest.mark.wireless
def test_another_process_receives_the_same_weights(shapes: dict[str, Tensor]) -> None:
    """What a link is built from is drawn too (its pilots): it must not hang on what the process did before."""
    from quietnn.channels import sionna_radio

    first = SionnaRadio(10.0).transmit(shapes, seed=0).received["gaussian"]
    torch.manual_seed(17)
    sionna_radio._link.cache_clear()
    before = torch.get_rng_state()
    assert torch.equal(SionnaRadio(10.0).transmit(shapes, seed=0).received["gaussian"], first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.wireless
@pytest.mark.parametrize("profile", PROFILES)
def test_a_tensor_meets_the_same_noise_in_any_order_and_after_any_other_draw(
    profile: str, shapes: dict[str, Tensor]
) -> None:
    turned = dict(reversed(shapes.items()))
    one = SionnaRadio(10.0, profile).transmit(shapes, seed=5).received
    SionnaRadio(10.0, profile).transmit(turned, seed=6)
    other = SionnaRadio(10.0, profile).transmit(turned, seed=5).received
    assert all(torch.allclose(one[name], other[name], rtol=1e-4, atol=1e-6) for name in shapes)


@pytest.mark.wireless
def test_white_noise_is_sionna_s_own(shapes: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    from sionna.phy.channel import AWGN

    heard = []
    call = AWGN.call
    monkeypatch.setattr(AWGN, "call", lambda self, x, no: heard.append(float(no)) or call(self, x, no))
    SionnaRadio(10.0, "awgn").transmit(shapes, seed=0)
    assert heard == pytest.approx([0.1] * len(shapes))


def test_channel_uses_count_whole_slots() -> None:
    weights = {"a": torch.zeros(1728), "b": torch.zeros(1)}
    assert SionnaRadio(10.0).rate(weights) == pytest.approx(2 * 2 * 14 * 72 / 1729)
    assert SionnaRadio(10.0).rate({}) == 1.0


def test_without_the_package_the_message_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sionna.phy", None)
    with pytest.raises(MissingData, match=r"pip install sionna-no-rt.*'fading'"):
        SionnaRadio(10.0, delay_spread=3.3e-7).transmit({"w": torch.tensor([1.0, 2.0])}, seed=0)


def test_an_unknown_profile() -> None:
    with pytest.raises(InvalidConfig, match="tdl-c"):
        SionnaRadio(10.0, "tdl-z")
