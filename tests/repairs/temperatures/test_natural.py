"""The search in natural units finds a planted optimum, whatever the fan-in."""

import math

import pytest
import torch
from torch import Tensor, nn

from quietnn.errors import InfeasibleTemperatures
from quietnn.evidence import Evidence
from quietnn.moments import WeightStatistics
from quietnn.observation import Observation
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.denoise import denoise
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.temperatures.gradient import LAYERWISE, tune_by_gradient
from quietnn.repairs.temperatures.result import Tried, TuningResult
from quietnn.repairs.temperatures.searches import coarse_to_fine, search_natural
from quietnn.repairs.temperatures.steps import Scale, natural_unit
from quietnn.score import Score
from quietnn.targets import noisy_weights

FAN_INS = (9, 64, 576, 4608)
PLANTED = ((0.8, -1.4), (1.1, 0.6), (0.7, 2.3))
"""Multipliers, and shifts in natural units."""


class Planted:
    """A layer whose received weights are the clean ones, shifted and scaled: undoing that is the best of all."""

    def __init__(self, fan_in: int, theta: float, shift: float) -> None:
        generator = torch.Generator().manual_seed(fan_in)
        self.clean = nn.Linear(fan_in, 10, bias=False)
        noise_std = 1.0
        with torch.no_grad():
            drawn = torch.randn(10, fan_in, generator=generator, dtype=torch.float64)
            self.clean = self.clean.double()
            self.clean.weight.copy_(drawn - drawn.mean())
        # Non-negative, as behind a ReLU: a shift of all weights is felt where the inputs have a mean.
        self.inputs = torch.rand(200, fan_in, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            self.targets = self.clean(self.inputs)
            self.received = nn.Linear(fan_in, 10, bias=False).double()
            self.received.weight.copy_(self.clean.weight / theta - shift / math.sqrt(fan_in) * noise_std)
        self.noise_variance = noise_std**2
        # What the sender tells, so that the family's own mean and variance do not depend on what is planted.
        self.statistics = {"whole": WeightStatistics(mean=0.0, variance=1.0, num_weights=10 * fan_in)}
        weights = noisy_weights(self.received)
        self.by_group = GroupedWeights.of(weights, self.noise_variance, statistics=self.statistics)
        self.scale = Scale(self.statistics["whole"], self.noise_variance)

    def loss(self, network: nn.Module, positions: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The mean square error relative to the spread of the targets."""
        error = (network(self.inputs[positions]) - self.targets[positions]).square().mean()
        return error / self.targets.var()

    def score(self, temperatures: Temperatures) -> Score:
        observation = Observation(self.received, self.noise_variance, statistics=self.statistics)
        network = denoise(observation, temperatures=temperatures).model
        with torch.no_grad():
            loss = float(self.loss(network, torch.arange(200)))
        return Score(accuracy=1.0 - loss, loss=loss, num_examples=200)

    def found(self, result: TuningResult[Temperatures]) -> tuple[float, float]:
        """The multiplier and the shift in natural units that a search has found."""
        best = result.temperatures
        return self.scale.theta(best), self.scale.shift(best) / natural_unit(self.by_group)


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("fan_in", FAN_INS)
def test_the_search_finds_a_planted_optimum(fan_in: int, planted: tuple[float, float]) -> None:
    network = Planted(fan_in, *planted)
    result = search_natural(Tried(network.score), network.scale, natural_unit(network.by_group))
    theta, shift = network.found(result)
    assert theta == pytest.approx(planted[0], rel=0.1)
    assert shift == pytest.approx(planted[1], abs=0.3)
    assert result.num_passes <= 60


def test_steps_in_noise_units_miss_it_at_a_large_fan_in() -> None:
    network = Planted(4608, 0.8, -1.4)
    old = coarse_to_fine(Tried(network.score), network.scale)
    new = search_natural(Tried(network.score), network.scale, natural_unit(network.by_group))
    assert new.best.score is not None
    assert old.best.score is not None
    assert new.best.score.loss < 0.2 * old.best.score.loss


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("fan_in", FAN_INS)
def test_the_gradient_finds_a_planted_optimum(fan_in: int, planted: tuple[float, float]) -> None:
    network = Planted(fan_in, *planted)
    tuned = tune_by_gradient(
        Observation(network.received, network.noise_variance, statistics=network.statistics),
        Evidence(mean_loss=network.loss, num_examples=200),
        groups="whole",
        settings=LAYERWISE,
    )
    best = tuned.temperatures["whole"]
    assert network.scale.theta(best) == pytest.approx(planted[0], rel=0.1)
    assert network.scale.shift(best) * math.sqrt(fan_in) == pytest.approx(planted[1], abs=0.3)
    assert network.scale.theta(best) >= network.scale.smallest_theta


def test_the_unit_is_that_of_an_average_weight() -> None:
    weights = {"small": torch.zeros(100, 1, 3, 3), "large": torch.zeros(100, 400)}
    by_group = GroupedWeights.of(weights, 1.0)
    assert natural_unit(by_group) == pytest.approx(((900 * 9 + 40000 * 400) / 40900) ** -0.5)


def test_without_noise_or_signal_there_is_nothing_to_search() -> None:
    quiet = search_natural(Tried(lambda point: Score(1.0, 0.0, 1)), Scale(WeightStatistics(0.0, 1.0, 10), 0.0), 0.1)
    assert quiet.temperatures == ML
    lost = Scale(WeightStatistics(0.0, 0.0, 10), 1.0)
    result = search_natural(Tried(lambda point: Score(1.0 - lost.theta(point), 0.0, 1)), lost, 0.1)
    assert result.temperatures == MMSE
    assert len(result.trials) == 2


def test_no_point_is_scored_twice_and_beta_stays_at_zero_if_told_so() -> None:
    network = Planted(64, 0.8, 1.0)
    result = search_natural(Tried(network.score), network.scale, natural_unit(network.by_group), with_beta=False)
    points = [trial.temperatures for trial in result.trials]
    assert len(points) == len(set(points))
    assert {point.beta for point in points} == {0.0}


def test_infeasible_points_are_recorded_and_do_not_win() -> None:
    def only_shrinking(point: Temperatures) -> Score:
        if point.lambda_prime > 0.5:
            raise InfeasibleTemperatures("too large")
        return Score(point.lambda_prime, 0.0, 1)

    result = search_natural(Tried(only_shrinking), Scale(WeightStatistics(0.0, 1.0, 10), 1.0), 0.1)
    assert any(trial.score is None for trial in result.trials)
    assert 0.0 < result.temperatures.lambda_prime <= 0.5
