"""The methods of a sweep on the embedded digits."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig
from quietnn.experiments.methods import EXPERIMENTAL, Draw, check_method, run_method
from quietnn.observation import Observation
from quietnn.repairs.affine import ML, Temperatures
from quietnn.repairs.base import REPAIRS
from quietnn.repairs.choice import at_least
from quietnn.repairs.grouped import GroupTemperatures, grouped
from quietnn.repairs.temperatures import tune
from quietnn.repairs.temperatures.gradient import LAYERWISE, GradientSettings, GradientTuning, tune_by_gradient
from quietnn.repairs.temperatures.result import Trial, TuningResult
from quietnn.repairs.temperatures.steps import start_from
from quietnn.repairs.temperatures.tune import Search, searched
from quietnn.tasks.digits import digits_task

TASK = digits_task()
COARSE_TO_FINE = Search("coarse-to-fine")


def network_for(method: str) -> nn.Module:
    """The network of the digits, or one that normalises each input for methods that are for such."""
    if not method.startswith(("branches", "directions", "energy")):
        return TASK.load_model()
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 10)).eval()


def receiver(wnr_db: float = 6.0, *, method: str = "ml", **options: object) -> Draw:
    observation = transmit(network_for(method), wnr_db=wnr_db, seed=1)
    known = TASK.evidence(TASK.tuning_examples(50, 1))
    taught = replace(known.without_labels(), teacher=network_for(method))
    return Draw(observation, known, taught, **{"search": COARSE_TO_FINE, **options})


def whole_search(draw: Draw) -> TuningResult[Temperatures]:
    """The search that all methods of a draw share."""
    return searched(draw.observation, draw.tuning, draw.search, seed=draw.seed)


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_every_repair_can_be_swept_and_so_can_what_needs_more_than_a_receiver_has() -> None:
    for name in (*REPAIRS, *EXPERIMENTAL):
        check_method(name)
    with pytest.raises(InvalidConfig, match=r"'mmse_bp'.*mmse_pb"):
        check_method("mmse_bp")


KNOW_NO_NOISE = (
    "re_estimated", "adapted_statistics", "t3a", "tent", "eata", "sar", "finetuned", "lora", "finetuned_started",
    "lora_started", "l2_sp",
)  # fmt: skip
"""Baselines: without noise they change a network all the same."""


@pytest.mark.parametrize("name", REPAIRS)
def test_a_method_leaves_the_received_network_alone_and_normalisation_too(name: str) -> None:
    given = receiver(method=name)
    before = state(given.observation.model)
    outcome = run_method(name, given)
    after = state(given.observation.model)
    assert all(torch.equal(before[key], after[key]) for key in before)
    denoised = state(outcome.model)
    normalisation = [key for key in before if ".bn" in key or key.startswith(("bn", "2."))]
    assert normalisation
    fitted = ("structured", "self_trained", "auto", "auto_unlabelled", *KNOW_NO_NOISE)
    moving = ("posterior_adapter", "posterior_digital", "matched", "matched_adapter", "tent", "eata", "sar")
    if name in moving:  # gains and biases are what they move
        assert not all(torch.equal(before[key], denoised[key]) for key in normalisation if "running" not in key)
        return
    if "calibrated" in name or "posterior" in name or name in fitted:
        normalisation = [key for key in normalisation if "running" not in key]
    assert all(torch.equal(before[key], denoised[key]) for key in normalisation)


@pytest.mark.parametrize("name", [name for name in REPAIRS if name not in KNOW_NO_NOISE])
def test_without_noise_every_method_returns_the_weights_bit_for_bit(name: str) -> None:
    given = receiver(wnr_db=float("inf"), method=name)
    estimate = state(run_method(name, given).model)
    assert all(torch.equal(tensor, estimate[key]) for key, tensor in state(network_for(name)).items())


def test_on_its_own_examples_each_wider_search_is_not_worse() -> None:
    given = receiver()
    ml = given.tuning.score_of(given.observation.model)
    whole = whole_search(given).best.score
    layers = run_method("mmse_pb_layerwise", given).details["search"].best.score
    assert whole is not None
    assert layers is not None
    assert (whole.accuracy, -whole.loss) >= (ml.accuracy, -ml.loss)
    assert layers.loss <= whole.loss * (1 + 1e-6)


def test_the_cost_is_counted_in_passes_over_the_tuning_examples() -> None:
    given = receiver()
    assert run_method("mmse", given).passes == 0
    assert run_method("calibrated", given).passes == 1
    assert 2 < run_method("mmse_pb", given).passes <= 25
    layerwise = run_method("mmse_pb_layerwise", given)
    assert layerwise.passes == len(whole_search(given).trials) + len(layerwise.details["search"].trials)


def test_racing_is_cheaper_and_says_so() -> None:
    raced = run_method("mmse_pb", receiver(search=Search(whole="racing")))
    assert 0 < raced.passes < 16


def test_auto_says_what_it_chose() -> None:
    outcome = run_method("auto_unlabelled", receiver())
    assert (outcome.details["chosen"], outcome.passes, outcome.details["expected_accuracy"]) == ("structured", 2, None)


def test_auto_says_what_it_expects_and_at_least() -> None:
    told = run_method("auto", receiver()).details
    assert told["accuracy_at_least"] == at_least(told["expected_accuracy"], 50)


def test_ml_has_the_gain_and_auto_judges_its_baseline_without() -> None:
    """What `auto` falls back to is the network that it judged, gain and offset undone."""
    clean = TASK.load_model()
    observation = transmit(clean, wnr_db=80.0, seed=0)
    with torch.no_grad():
        for tensor in observation.weights.values():
            tensor.mul_(3.0)
    given = replace(receiver(), observation=Observation(observation.received, observation.noise_variance, gain=3.0))
    ml = state(run_method("ml", given).model)
    assert all(torch.equal(tensor, ml[name]) for name, tensor in state(observation.received).items())
    baseline = run_method("auto", given).details["tried"][0]
    assert baseline.name == "ml"
    assert baseline.loss == pytest.approx(given.tuning.score_of(clean).loss, rel=1e-2)


def test_in_natural_units_layers_are_tuned_by_gradient_and_the_cost_is_told() -> None:
    given = receiver(wnr_db=2.0, search=Search(whole="natural"))
    whole, layers = run_method("mmse_pb", given), run_method("mmse_pb_layerwise", given)
    assert 9 < whole.passes <= 60
    # A gradient costs three passes; so many looks at the loss come on top, the first at the start, and the last score.
    num_looks = 1 + LAYERWISE.num_steps // LAYERWISE.judge_every
    assert layers.passes == whole.passes + 3 * LAYERWISE.num_steps + num_looks + 1
    assert all(pair.lambda_prime >= 0.0 for pair in layers.details["temperatures"].values())


def test_the_gradient_starts_from_the_whole_model_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[GroupTemperatures] = []

    def watched(*arguments: object, start: GroupTemperatures, **options: object) -> GradientTuning:
        starts.append(start)
        options["settings"] = GradientSettings(num_steps=1)
        return tune_by_gradient(*arguments, start=start, **options)

    monkeypatch.setattr(tune, "tune_by_gradient", watched)
    given = receiver(wnr_db=2.0)
    whole = whole_search(given).temperatures
    run_method("mmse_pb_gradient", given)
    layers = grouped(given.observation, "layerwise")
    assert starts == [start_from(whole, tune._scale(grouped(given.observation)), layers)]
    assert set(starts[0].values()) != {ML}, "the optimum is somewhere else here"


@pytest.mark.parametrize("name", ["posterior", "self_trained", "finetuned", "mmse_pb_gradient"])
def test_methods_that_fit_see_variants_of_the_inputs(name: str) -> None:
    class Seen(Exception):
        pass

    def augment(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        raise Seen

    given = receiver()
    varied = replace(given, tuning=replace(given.tuning, augment=augment))
    with pytest.raises(Seen):
        run_method(name, varied)


def test_the_authors_grid_and_convention_can_be_asked_for() -> None:
    given = receiver(search=Search(whole="resnet", criterion="accuracy-only", form="zero-mean"))
    assert run_method("mmse_pb", given).passes == 276
    assert run_method("mmse_p", given).passes == 12


def test_an_oracle_needs_test_examples_and_a_reuse_its_reference() -> None:
    with pytest.raises(InvalidConfig, match="oracle"):
        run_method("mmse_pb_oracle", receiver())
    with pytest.raises(InvalidConfig, match="reuse_wnr_db"):
        run_method("mmse_pb_reused", receiver())
    test = TASK.test_examples(100)
    oracle = run_method("mmse_pb_oracle", receiver(oracle=TASK.evidence(test)))
    assert oracle.details["search"].best.score == TASK.evaluate(oracle.model, test)


def test_reused_temperatures_past_the_pole_fall_back_to_the_weights_as_they_came() -> None:
    high, low = receiver(wnr_db=10.0), receiver(wnr_db=-20.0, reference=lambda: high)
    reused = run_method("mmse_pb_reused", receiver(wnr_db=10.0, reference=lambda: high))
    assert reused.details["search"] is whole_search(high), "searched once"
    far = Temperatures(1.5)  # at -20 dB the pole is at 1.01
    (key,) = (key for key in high.observation._memory if isinstance(key, tuple) and key[0] == "searched")
    high.observation._memory[key] = TuningResult.of([Trial(far, whole_search(high).best.score)])
    assert run_method("mmse_pb_reused", low).model is low.observation.received
