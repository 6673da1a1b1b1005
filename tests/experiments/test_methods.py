"""The methods of a sweep on the embedded digits."""

from functools import partial

import pytest
import torch
from torch import nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig
from quietnn.experiments import methods
from quietnn.experiments.methods import METHODS, Receiver, Search
from quietnn.repairs.affine import ML, Temperatures
from quietnn.repairs.auto import auto_labelled
from quietnn.repairs.choice import at_least
from quietnn.repairs.grouped import GroupTemperatures
from quietnn.repairs.temperatures.gradient import GradientSettings, GradientTuning, tune_by_gradient
from quietnn.repairs.temperatures.layerwise import start_from
from quietnn.repairs.temperatures.result import Trial, TuningResult
from quietnn.tasks.digits import digits_task

TASK = digits_task()


def network_for(method: str) -> nn.Module:
    """The network of the digits, or one that normalises each input for methods that are for such."""
    if not method.startswith("branches"):
        return TASK.load_model()
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 10)).eval()


def receiver(wnr_db: float = 6.0, *, method: str = "ml", **options: object) -> Receiver:
    observation = transmit(network_for(method), wnr_db=wnr_db, seed=1)
    return Receiver(
        observation.received, observation.noise_variance, TASK.tuning_examples(50, 1), TASK.evaluate, **options
    )


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("mmse_pb_oracle", "mmse_pb_reused")])
def test_a_method_leaves_the_received_network_alone_and_normalisation_too(name: str) -> None:
    given = receiver(method=name)
    before = state(given.model)
    outcome = METHODS[name](given)
    after = state(given.model)
    assert all(torch.equal(before[key], after[key]) for key in before)
    denoised = state(outcome.model)
    normalisation = [key for key in before if ".bn" in key or key.startswith(("bn", "2."))]
    assert normalisation
    fitted = ("structured", "self_trained", "re_estimated", "posterior", "finetuned", "auto", "auto_unlabelled")
    if "calibrated" in name or name in fitted:
        normalisation = [key for key in normalisation if "running" not in key]
    assert all(torch.equal(before[key], denoised[key]) for key in normalisation)


@pytest.mark.parametrize(
    "name", [name for name in METHODS if name not in ("mmse_pb_oracle", "mmse_pb_reused", "re_estimated", "finetuned")]
)
def test_without_noise_every_method_returns_the_weights_bit_for_bit(name: str) -> None:
    given = receiver(wnr_db=float("inf"), method=name)
    estimate = state(METHODS[name](given).model)
    assert all(torch.equal(tensor, estimate[key]) for key, tensor in state(network_for(name)).items())


def test_on_its_own_examples_each_wider_search_is_not_worse() -> None:
    given = receiver()
    ml = TASK.evaluate(given.model, given.tuning)
    whole = given.whole_search.best.score
    layers = given.layerwise_search.best.score
    assert whole is not None
    assert layers is not None
    assert (whole.accuracy, -whole.loss) >= (ml.accuracy, -ml.loss)
    assert layers.loss <= whole.loss * (1 + 1e-6)


def test_the_cost_is_counted_in_passes_over_the_tuning_examples() -> None:
    given = receiver()
    assert METHODS["mmse"](given).num_passes == 0
    assert METHODS["calibrated"](given).num_passes == 1
    assert 2 < METHODS["mmse_pb"](given).num_passes <= 25
    assert METHODS["mmse_pb_layerwise"](given).num_passes == len(given.whole_search.trials) + len(
        given.layerwise_search.trials
    )


def test_racing_is_cheaper_and_says_so() -> None:
    raced = METHODS["mmse_pb"](receiver(search=Search(whole="racing")))
    assert 0 < raced.num_passes < 16


def test_auto_says_what_it_chose() -> None:
    outcome = METHODS["auto_unlabelled"](receiver())
    assert (outcome.chosen, outcome.num_passes, outcome.expected_accuracy) == ("structured", 1, None)


def test_auto_says_what_it_expects_and_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "auto_labelled", partial(auto_labelled, max_passes=30))
    outcome = METHODS["auto"](receiver())
    assert outcome.accuracy_at_least == at_least(outcome.expected_accuracy, 50)


def test_the_gradient_starts_from_the_whole_model_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[GroupTemperatures] = []

    def watched(*arguments: object, start: GroupTemperatures, **options: object) -> GradientTuning:
        starts.append(start)
        return tune_by_gradient(*arguments, start=start, settings=GradientSettings(num_steps=1), **options)

    monkeypatch.setattr(methods, "tune_by_gradient", watched)
    given = receiver(wnr_db=2.0)
    whole = given.whole_search.temperatures
    METHODS["mmse_pb_gradient"](given)
    assert starts == [start_from(whole, given.scale, given.layers)]
    assert set(starts[0].values()) != {ML}, "the optimum is somewhere else here"


@pytest.mark.parametrize("name", ["posterior", "self_trained", "finetuned", "mmse_pb_gradient"])
def test_methods_that_fit_see_variants_of_the_inputs(name: str) -> None:
    class Seen(Exception):
        pass

    def augment(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        raise Seen

    with pytest.raises(Seen):
        METHODS[name](receiver(augment=augment))


def test_the_authors_grid_and_convention_can_be_asked_for() -> None:
    given = receiver(search=Search(whole="resnet", criterion="accuracy-only", form="zero-mean"))
    assert METHODS["mmse_pb"](given).num_passes == 276
    assert METHODS["mmse_p"](given).num_passes == 12


def test_an_oracle_needs_test_examples_and_a_reuse_its_reference() -> None:
    with pytest.raises(InvalidConfig, match="oracle"):
        METHODS["mmse_pb_oracle"](receiver())
    with pytest.raises(InvalidConfig, match="reuse_wnr_db"):
        METHODS["mmse_pb_reused"](receiver())
    test = TASK.test_examples(100)
    given = receiver(oracle=test)
    oracle = METHODS["mmse_pb_oracle"](given)
    assert oracle.search is not None
    assert oracle.search.best.score == TASK.evaluate(oracle.model, test)


def test_reused_temperatures_past_the_pole_fall_back_to_the_weights_as_they_came() -> None:
    high, low = receiver(wnr_db=10.0), receiver(wnr_db=-20.0, reference=lambda: high)
    assert METHODS["mmse_pb_reused"](receiver(wnr_db=10.0, reference=lambda: high)).search is high.whole_search
    far = Temperatures(1.5)  # at -20 dB the pole is at 1.01
    high.__dict__["whole_search"] = TuningResult.of([Trial(far, high.whole_search.best.score)])
    assert METHODS["mmse_pb_reused"](low).model is low.model
