"""Temperatures by gradient: a planted optimum, the feasible region, the guard."""

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InfeasibleTemperatures, InvalidConfig
from quietnn.evidence import Evidence
from quietnn.noise import NoiseVariance, noise_by_group
from quietnn.observation import Observation
from quietnn.repairs.affine import ML, Temperatures
from quietnn.repairs.denoise import denoise
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.temperatures.gradient import DEFAULT, GradientSettings, GradientTuning, _Path, tune_by_gradient
from quietnn.repairs.temperatures.steps import scales
from quietnn.score import Split
from quietnn.targets import noisy_weights, with_weights
from quietnn.weights import layerwise

LONG = GradientSettings(num_steps=300, step_size=0.05, judge_every=50)


class Imitate:
    """The squared distance between a network's outputs and a teacher's."""

    def __init__(self, teacher: nn.Module, num_examples: int = 64) -> None:
        self.inputs = torch.randn(num_examples, 8, generator=torch.Generator().manual_seed(9))
        with torch.no_grad():
            self.outputs = teacher.eval()(self.inputs)

    def __call__(self, network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        return (network(self.inputs[positions]) - self.outputs[positions]).square().mean()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 4)).eval()


BY_LAYER = {"0": 0.02, "2": 0.005, "4": 0.015}


def planted(
    thetas: Mapping[str, float], shifts: Mapping[str, float], noise_variance: NoiseVariance = 0.01
) -> tuple[nn.Module, nn.Module, NoiseVariance]:
    """A received network, the teacher that the given multipliers and shifts make of it, and the noise variance."""
    received = network()
    by_group = GroupedWeights.of(noisy_weights(received), noise_variance, groups="layerwise")
    chosen = {g: scale.temperatures(thetas.get(g, 1.0), shifts.get(g, 0.0)) for g, scale in scales(by_group).items()}
    teacher = denoise(received, noise_variance=noise_variance, groups="layerwise", temperatures=chosen).model
    return received, teacher, noise_variance


@pytest.mark.parametrize("noise", [0.01, BY_LAYER])
def test_it_recovers_planted_multipliers_and_shifts(noise: NoiseVariance) -> None:
    thetas, shifts = {"0": 1.3, "2": 0.9, "4": 1.15}, {"0": 0.1, "4": -0.2}
    received, teacher, noise_variance = planted(thetas, shifts, noise)
    result = tune_by_gradient(
        Observation(received, noise_variance), Evidence(mean_loss=Imitate(teacher), num_examples=64), settings=LONG
    )
    steps = scales(GroupedWeights.of(noisy_weights(received), noise_variance, groups="layerwise"))
    for group, scale in steps.items():
        assert scale.theta(result.temperatures[group]) == pytest.approx(thetas[group], abs=0.01)
        assert scale.shift(result.temperatures[group]) == pytest.approx(shifts.get(group, 0.0), abs=0.01)


def test_the_multiplier_stops_at_mmse() -> None:
    received = network()
    nothing = with_weights(received, {name: tensor * 0.05 for name, tensor in noisy_weights(received).items()})
    result = tune_by_gradient(
        Observation(received, 0.01),
        Evidence(mean_loss=Imitate(nothing), num_examples=64),
        settings=LONG,
    )
    assert all(0.0 <= pair.lambda_prime <= 1.0 for pair in result.temperatures.values())
    assert result.temperatures["4"].lambda_prime == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("noise", [0.01, BY_LAYER])
def test_the_gradient_is_that_of_the_loss(noise: NoiseVariance) -> None:
    received, teacher, noise_variance = planted({"0": 1.2}, {"2": 0.2}, noise)
    received, teacher = received.double(), teacher.double()
    loss = Imitate(network(), 16)
    loss.inputs, loss.outputs = loss.inputs.double(), loss.outputs.double()
    by_group = GroupedWeights.of(noisy_weights(received), noise_variance, groups="layerwise")
    path = _Path(by_group, dict.fromkeys(by_group.groups, Temperatures(1.0, 0.3)))
    scratch, everything = (
        Scratch(Observation(received, None), Evidence(mean_loss=loss, num_examples=16)),
        torch.arange(16),
    )
    _, gradients = scratch.gradient(path.weights(), everything, torch.Generator())
    claimed = path.pull_back(gradients)
    for part in range(2):
        for index in range(3):
            values = []
            for step in (1e-3, -1e-3):
                path.point[part][index] += step
                values.append(scratch.judge(path.weights(), everything))
                path.point[part][index] -= step
            assert float(claimed[part][index]) == pytest.approx((values[0] - values[1]) / 2e-3, rel=2e-3, abs=1e-6)


def best_step(result: GradientTuning) -> int:
    """After how many steps the held-out loss was smallest."""
    return min(result.held_out_loss, key=lambda step: result.held_out_loss[step])


@pytest.mark.parametrize("seed", range(3))
def test_the_result_is_the_best_held_out_point_and_not_worse_than_the_start(seed: int) -> None:
    observation = transmit(network(), wnr_db=0.0, seed=seed)
    loss = Imitate(network(), 20)
    result = tune_by_gradient(
        observation,
        Evidence(mean_loss=loss, num_examples=20),
        start=ML,
        seed=seed,
    )
    assert list(result.held_out_loss) == list(range(0, 41, 4))
    if best_step(result) == 0:
        assert result.temperatures == dict.fromkeys(result.temperatures, ML)
    assert len(result.fit_loss) == 40
    assert result.num_passes == pytest.approx(40 * 3 * 0.8 + 11 * 0.2)


def test_it_returns_the_best_held_out_point_and_not_the_last() -> None:
    """The fit heads for a multiplier that the held-out examples find too large: they like a point on the way there."""
    received, far, noise_variance = planted({"4": 1.8}, {})
    near = planted({"4": 1.2}, {})[1]
    split = Split.of(64, DEFAULT.held_out, seed=0)
    to_fit, to_judge = Imitate(far), Imitate(near)

    def torn(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        held_out = bool(torch.isin(positions, split.held_out).all())
        return (to_judge if held_out else to_fit)(network, positions, generator)

    result = tune_by_gradient(Observation(received, noise_variance), Evidence(mean_loss=torn, num_examples=64))
    best = denoise(received, noise_variance=noise_variance, groups="layerwise", temperatures=result.temperatures).model
    assert 0 < best_step(result) < 40
    assert 2 * min(result.held_out_loss.values()) < result.held_out_loss[40]
    with torch.no_grad():
        assert float(torn(best, split.held_out, None)) == pytest.approx(min(result.held_out_loss.values()), rel=1e-4)


def test_the_caller_keeps_weights_modes_and_flags(snapshot: Callable[[Mapping[str, Tensor]], dict[str, bytes]]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 4)).train()
    model[0].weight.requires_grad_(False)
    observation = transmit(model, wnr_db=3.0, seed=0)
    before = snapshot(observation.received.state_dict())
    loss = Imitate(nn.Linear(8, 4), 20)
    tune_by_gradient(observation, Evidence(mean_loss=loss, num_examples=20), settings=GradientSettings(num_steps=5))
    assert snapshot(observation.received.state_dict()) == before
    assert all(layer.training for layer in observation.received.modules())
    assert not observation.received[0].weight.requires_grad
    assert all(parameter.grad is None for parameter in observation.received.parameters())


def test_without_noise_the_answer_is_ml() -> None:
    result = tune_by_gradient(Observation(network(), 0.0), Evidence(mean_loss=Imitate(network()), num_examples=64))
    assert set(result.temperatures.values()) == {ML}
    assert result.num_passes == 0


def test_the_same_seed_gives_the_same_temperatures() -> None:
    observation = transmit(network(), wnr_db=0.0, seed=0)
    loss, settings = Imitate(network()), GradientSettings(num_steps=8)

    def run(seed: int) -> object:
        return tune_by_gradient(
            observation,
            Evidence(mean_loss=loss, num_examples=64),
            settings=settings,
            seed=seed,
        ).temperatures

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_step_onto_a_loss_that_overflows_is_taken_back() -> None:
    received, teacher, noise_variance = planted({"4": 1.3}, {})
    imitate, calls = Imitate(teacher), []

    def fragile(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        calls.append(generator is not None)
        value = imitate(network, positions, generator)
        return value * math.nan if sum(calls) in (3, 7) and generator is not None else value

    result = tune_by_gradient(
        Observation(received, noise_variance),
        Evidence(mean_loss=fragile, num_examples=64),
        settings=GradientSettings(),
    )
    assert [step for step, value in enumerate(result.fit_loss) if math.isinf(value)] == [2, 6]
    assert result.held_out_loss[40] < result.held_out_loss[0]


def test_a_start_where_the_loss_overflows_is_kept() -> None:
    received, teacher, noise_variance = planted({"4": 1.3}, {})
    imitate = Imitate(teacher)
    result = tune_by_gradient(
        Observation(received, noise_variance),
        Evidence(mean_loss=lambda *arguments: imitate(*arguments) * math.inf, num_examples=64),
    )
    assert set(result.temperatures.values()) == {ML}
    assert result.fit_loss == (math.inf,)


def test_bad_starts_and_settings_are_refused() -> None:
    received, teacher, noise_variance = planted({}, {})
    with pytest.raises(InfeasibleTemperatures):
        tune_by_gradient(
            Observation(received, noise_variance),
            Evidence(mean_loss=Imitate(teacher), num_examples=64),
            start=Temperatures(1e9),
        )
    with pytest.raises(InvalidConfig, match="num_steps"):
        GradientSettings(num_steps=0)
    with pytest.raises(InvalidConfig, match="step_size"):
        GradientSettings(step_size=-1.0)


def test_noise_that_differs_within_a_group_is_refused_until_it_is_evened_out() -> None:
    received = network()
    weights, settings = noisy_weights(received), GradientSettings(num_steps=2)
    noise = {name: 0.01 if name.endswith("weight") else 0.02 for name in weights}
    by_weight = {name: torch.rand(tensor.shape) * 0.01 for name, tensor in weights.items()}
    for uneven in (noise, by_weight):
        with pytest.raises(InvalidConfig, match="the noise differs within group '0'"):
            tune_by_gradient(
                Observation(received, uneven),
                Evidence(mean_loss=Imitate(network()), num_examples=64),
                settings=settings,
            )
        even = noise_by_group(uneven, weights, layerwise(weights))
        assert (
            tune_by_gradient(
                Observation(received, even),
                Evidence(mean_loss=Imitate(network()), num_examples=64),
                settings=settings,
            ).num_passes
            > 0
        )


def test_a_layer_without_noise_stays_as_it_came() -> None:
    received, teacher, _ = planted({"0": 1.3, "2": 1.2}, {})
    noise = {"0": 0.01, "2": 0.0, "4": 0.01}
    result = tune_by_gradient(Observation(received, noise), Evidence(mean_loss=Imitate(teacher), num_examples=64))
    assert result.temperatures["2"] == ML
    assert result.temperatures["0"] != ML
    nothing = tune_by_gradient(
        Observation(received, dict.fromkeys(noise, 0.0)), Evidence(mean_loss=Imitate(teacher), num_examples=64)
    )
    assert (set(nothing.temperatures.values()), nothing.num_passes) == ({ML}, 0)
