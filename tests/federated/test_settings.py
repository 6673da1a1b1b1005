"""What a run of noisy training is, whoever runs it."""

import math
from dataclasses import replace

import pytest

from quietnn.channels.awgn import AWGN
from quietnn.errors import InvalidConfig
from quietnn.experiments.noisy_training import NoisyTraining
from quietnn.federated.air import ChannelInversion, Dropout
from quietnn.federated.settings import FederationSettings
from quietnn.federated.tasks import FederatedTask

SETTINGS: FederationSettings = NoisyTraining(name="mini", task="digits", wnr_db=(0.0,), methods=("ml",), batch_size=25)


def test_the_air_is_made_of_the_pieces_that_are_set_and_perfect_without_noise() -> None:
    faded = replace(SETTINGS, fading="inversion", csi_error=0.1, power_cap=5.0, dropout=0.2)
    assert faded.air(-3.0).gains == (ChannelInversion(0.1, 5.0), Dropout(0.2))
    assert faded.air(math.inf).gains == ()
    assert SETTINGS.air(-3.0).gains == ()
    assert isinstance(SETTINGS.air(-3.0).channel, AWGN)


def test_the_identity_is_all_that_decides_an_outcome() -> None:
    assert replace(SETTINGS, name="other", wnr_db=(5.0,)).identity() == SETTINGS.identity()
    assert replace(SETTINGS, num_epochs=7).identity() != SETTINGS.identity()
    assert "norm_bound" not in SETTINGS.identity(), "as in runs from before there was one"
    assert replace(SETTINGS, norm_bound=3.0).identity()["norm_bound"] == 3.0


def test_devices_follow_from_the_seed(digits: FederatedTask) -> None:
    one, again, other = (SETTINGS.devices(digits, seed=seed) for seed in (0, None, 1))
    assert list(one) == list(range(SETTINGS.num_devices))
    assert one[3].labels.equal(again[3].labels)
    assert not one[3].inputs.equal(other[3].inputs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_active": 21}, "21 of 20 devices"),
        ({"fading": "phase", "power_cap": 2.0}, "set fading to 'inversion'"),
        ({"norm_bound": 0.5}, "or inf for no limit"),
        ({"task": "digit"}, "did you mean 'digits'"),
    ],
    ids=str,
)
def test_a_federation_that_could_not_run_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        replace(SETTINGS, **change)  # type: ignore[arg-type]
