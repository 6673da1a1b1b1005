"""The server's half of a round, as a pure function."""

import math

import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.awgn import AWGN
from quietnn.errors import InvalidConfig
from quietnn.federated.air import Air
from quietnn.federated.devices import DeviceData, Diverged, LocalTraining
from quietnn.federated.estimators import Affine, Estimator, Memory, ReceivedSum, Tuned
from quietnn.federated.rounds import Federation, ServerState, aggregate
from quietnn.federated.schemes import Carried
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.score import Score

NOISY = ("a.weight", "a.bias", "b.weight")


def state() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "a.weight": torch.randn(50, 40, generator=generator),
        "a.bias": torch.randn(50, generator=generator),
        "bn.weight": torch.ones(50),
        "bn.running_mean": torch.zeros(50),
        "bn.num_batches_tracked": torch.tensor(7),
        "b.weight": torch.randn(10, 50, generator=generator),
    }


def updates(num_devices: int = 4) -> dict[int, dict[str, Tensor]]:
    scale = {"a.weight": 0.1, "a.bias": 0.1, "b.weight": 1.0}
    found = {}
    for device in range(num_devices):
        generator = torch.Generator().manual_seed(100 + device)
        found[3 * device] = {
            name: torch.randn(tensor.shape, generator=generator) * scale.get(name, 1.0)
            if tensor.is_floating_point()
            else torch.tensor(5)
            for name, tensor in state().items()
        }
    return found


NOBODY = DeviceData(torch.empty(0), torch.empty(0), nn.Identity())


def federation(estimator: Estimator, wnr_db: float, **rest: object) -> Federation:
    devices = dict.fromkeys(range(10), NOBODY)
    return Federation(devices, LocalTraining(), Air(AWGN(wnr_db=wnr_db)), estimator, seed=9, **rest)  # type: ignore[arg-type]


def run(estimator: Estimator, wnr_db: float = math.inf, *, number: int = 2, **rest: object) -> dict[str, Tensor]:
    after, _ = aggregate(federation(estimator, wnr_db, **rest), ServerState(number, state()), updates(), noisy=NOISY)
    assert after.num_rounds_done == number + 1
    return after.state


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


def error(new: dict[str, Tensor]) -> float:
    clean = run(Affine(ML))
    return sum(float((new[name] - clean[name]).square().sum()) for name in NOISY)


def test_mmse_errs_less_than_ml_and_layerwise_less_than_whole() -> None:
    ml, whole, layers = (error(run(one, -6.0)) for one in (Affine(ML), Affine(MMSE), Affine(MMSE, "layerwise")))
    assert layers < whole < 0.5 * ml


def test_statistics_can_be_told() -> None:
    estimated, told = (error(run(Affine(MMSE, "layerwise"), -6.0, told=told)) for told in (False, True))
    assert told == pytest.approx(estimated, rel=0.3)
    assert told != estimated


def test_temperatures_past_the_pole_take_the_round_as_it_came() -> None:
    past = run(Affine(Temperatures(5.0)), 0.0)
    assert all(torch.equal(past[name], tensor) for name, tensor in run(Affine(ML), 0.0).items())


def test_a_search_uses_the_score_it_is_given_and_no_other() -> None:
    truth = run(Affine(ML))

    def score(candidate: dict[str, Tensor]) -> Score:
        distance = sum(float((candidate[name] - truth[name]).square().sum()) for name in NOISY)
        return Score(accuracy=0.0, loss=distance, num_examples=1)

    found = run(Tuned(), -3.0, score=score)
    assert error(found) < error(run(Affine(ML), -3.0))
    with pytest.raises(InvalidConfig, match="needs a score"):
        run(Tuned(oracle=True), -3.0, score=score)
    assert error(run(Tuned(groups="layerwise"), -3.0, score=score)) <= error(found)


def test_a_carried_prior_is_the_kalman_filter_of_an_autoregressive_sum() -> None:
    """Against the textbook recursion with the true parameters: nearly its error, and well below MMSE."""
    a, q, noise_variance, num = 0.9, 0.19, 4.0, 20_000
    generator = torch.Generator().manual_seed(0)
    total = torch.randn(num, generator=generator)
    memory: Memory = {}
    mean, variance = torch.zeros(num), 1.0
    carried, kalman, mmse = [], [], []
    for number in range(12):
        if number:
            total = a * total + math.sqrt(q) * torch.randn(num, generator=generator)
            mean, variance = a * mean, a * a * variance + q
        heard = total + math.sqrt(noise_variance) * torch.randn(num, generator=generator)
        received = ReceivedSum({"w": heard}, noise_variance, {"w": total}, 1)
        estimate = Carried()(received, memory)
        memory = estimate.memory
        gain = variance / (variance + noise_variance)
        mean, variance = mean + gain * (heard - mean), (1 - gain) * variance
        for errors, guess in ((carried, estimate.total["w"]), (kalman, mean), (mmse, 0.2 * heard)):
            errors.append(float((guess - total).square().mean()))
    assert carried[-1] == pytest.approx(kalman[-1], rel=0.03)
    assert carried[-1] < 0.8 * mmse[-1]
    assert carried[0] == pytest.approx(mmse[0], rel=0.02)


def test_noise_past_the_largest_float_is_divergence() -> None:
    with pytest.raises(Diverged, match="the sum received in round 3 is not finite"):
        run(Affine(ML), -770.0)


def test_updates_that_do_not_fit_are_refused() -> None:
    sent = updates()
    sent[3]["a.weight"][0, 0] = math.nan
    plain, server = federation(Affine(ML), 0.0), ServerState(4, state())
    with pytest.raises(Diverged, match="device 3 in round 5 is not finite in a\\.weight"):
        aggregate(plain, server, sent, noisy=NOISY)
    with pytest.raises(InvalidConfig, match="'c\\.weight' is to be noisy"):
        aggregate(plain, server, updates(), noisy=["c.weight"])
    del sent[3]["b.weight"]
    with pytest.raises(InvalidConfig, match="device 3 and the state dict differ in 'b\\.weight'"):
        aggregate(plain, server, sent, noisy=NOISY)
    with pytest.raises(InvalidConfig, match="no device"):
        aggregate(plain, server, {}, noisy=NOISY)
