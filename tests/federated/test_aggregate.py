"""The server's half of a round, as a pure function."""

import pytest
import torch
from tests.federated.sums import NOISY, federation, run, state, updates

from quietnn.errors import InvalidConfig
from quietnn.federated.devices import Diverged
from quietnn.federated.estimators import Affine
from quietnn.federated.rounds import ServerState, aggregate
from quietnn.federated.schemes import Carried
from quietnn.repairs.affine import ML, MMSE


def test_without_noise_it_is_the_mean() -> None:
    new, sent = run(Affine(ML)), updates()
    for name, tensor in state().items():
        mean = torch.stack([update[name].double() for update in sent.values()]).mean(0)
        assert torch.allclose(new[name].double(), tensor.double() + mean, atol=1e-6)
        assert new[name].dtype == tensor.dtype


def test_only_noisy_parameters_meet_the_noise() -> None:
    clean, noisy = run(Affine(ML)), run(Affine(ML), 0.0)
    for name in state():
        assert torch.equal(clean[name], noisy[name]) == (name not in NOISY)


def test_the_same_arguments_give_the_same_bits_in_any_order() -> None:
    backwards = dict(reversed(updates().items()))
    one = run(Carried(), -3.0)
    other, _ = aggregate(federation(Carried(), -3.0), ServerState(2, state()), backwards, noisy=NOISY)
    assert all(torch.equal(one[name], other.state[name]) for name in one)
    assert not torch.equal(run(Affine(ML), 0.0)["a.weight"], run(Affine(ML), 0.0, number=3)["a.weight"])


def test_the_inputs_stay_as_they_are() -> None:
    weights, sent = state(), updates()
    aggregate(federation(Affine(MMSE), 0.0), ServerState(0, weights), sent, noisy=NOISY)
    assert all(torch.equal(weights[name], tensor) for name, tensor in state().items())
    assert all(torch.equal(sent[3][name], tensor) for name, tensor in updates()[3].items())


def test_noise_past_the_largest_float_is_divergence() -> None:
    with pytest.raises(Diverged, match="the sum received in round 3 is not finite"):
        run(Affine(ML), -770.0)


def test_updates_that_do_not_fit_are_refused() -> None:
    plain, server = federation(Affine(ML), 0.0), ServerState(4, state())
    with pytest.raises(InvalidConfig, match="'c\\.weight' is to be noisy"):
        aggregate(plain, server, updates(), noisy=["c.weight"])
    with pytest.raises(InvalidConfig, match="no device"):
        aggregate(plain, server, {}, noisy=NOISY)
