"""The front door: every mistake is told with the call that would be right."""

import inspect

import pytest
import torch
from torch import nn

import quietnn
from quietnn import Evidence, Observation, PosteriorSettings, Search, repair, transmit
from quietnn.errors import QuietnnError
from quietnn.repairs.base import REPAIRS

INPUTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(30) % 3
VERBS = (
    quietnn.denoise,
    quietnn.calibrate,
    quietnn.calibrate_structured,
    quietnn.denoise_branches,
    quietnn.re_estimate,
    quietnn.self_train,
    quietnn.posterior,
    quietnn.finetune,
    quietnn.tune,
    quietnn.auto,
    quietnn.repair,
)


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        # the wrong kind
        ((None,), {}, "give what arrived: an Observation, a module, a state dict or a tensor"),
        (("model.pt",), {}, "load it first"),
        ((nn.Linear,), {}, r"pass a network: repair\(Linear\(\), ...\)"),
        ((..., "images"), {}, r"a network is called with one tensor, or with a dict .*torch.as_tensor\(...\)"),
        ((..., iter([INPUTS])), {}, r"read once only; give a list of batches, list\(inputs\)"),
        ((..., INPUTS, "labels"), {"method": "posterior"}, r"labels is a str, .*torch.as_tensor\(...\)"),
        ((..., INPUTS, LABELS.float()), {"method": "posterior"}, r"use labels.long\(\)"),
        # the wrong order
        ((INPUTS, ...), {}, r"inputs is a network; what arrived comes first: repair\(model, inputs, labels\)"),
        ((..., LABELS, INPUTS), {"method": "posterior"}, r"inputs come before labels: repair\(model, inputs, labels\)"),
        # noise
        ((...,), {"wnr_db": 6.0}, "given twice, noise_variance=0.01 and wnr_db=6.0; leave one out"),
        ((...,), {"noise_variance": -1.0}, "noise_variance is -1.0"),
        ((...,), {"noise_variance": None}, "give it: noise_variance=1e-4 or wnr_db=6, or use"),
        (
            (...,),
            {"noise_variance": None, "method": "mmse"},
            "give it: noise_variance=1e-4 or wnr_db=6, beside the other arguments",
        ),
        ((...,), {"noise_variance": {"7": 0.1}}, "'7'"),
        # the method and what goes with it
        ((...,), {"method": "posteriour"}, "method is 'posteriour'; did you mean 'posterior'"),
        ((...,), {"method": "calibrated"}, r"call repair\(model, inputs, method='calibrated', ...\)"),
        ((..., INPUTS), {"method": "posterior"}, r"call repair\(model, inputs, labels, method='posterior', ...\)"),
        (
            (..., INPUTS, LABELS),
            {"method": "posterior", "settings": Search()},
            r"settings is a Search; posterior takes settings=quietnn.PosteriorSettings\(...\)",
        ),
        (
            (..., INPUTS),
            {"method": "calibrated", "settings": PosteriorSettings()},
            "settings is a PosteriorSettings; calibrated takes no settings",
        ),
        # labels
        ((...,), {"labels": LABELS}, r"labels came without inputs; give both: repair\(model, inputs, labels\)"),
        ((..., INPUTS, LABELS[:4]), {}, r"30 inputs do not go with labels of shape \(4,\); give one for each"),
        ((..., Evidence(INPUTS), LABELS), {}, r"make one with dataclasses.replace\(evidence, ...\)"),
        (
            (..., [(INPUTS, LABELS)], LABELS),
            {},
            "a list brings its labels, and labels were given too; leave labels out",
        ),
        ((..., INPUTS, LABELS), {"score": 0.5, "method": "mmse_pb"}, "score is a float; give a function"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(
    network: nn.Module, arguments: tuple[object, ...], options: dict[str, object], message: str
) -> None:
    given = [network if one is ... else one for one in arguments]
    with pytest.raises(QuietnnError, match=message):
        repair(*given, **{"noise_variance": 0.01, **options})


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_verb_takes_what_arrived_then_inputs_then_labels(verb: object) -> None:
    signature = inspect.signature(verb)
    in_order = [one.name for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert in_order == ["what", "inputs", "labels"][: len(in_order)]
    assert signature.return_annotation is quietnn.Repaired


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_verb_returns_a_repaired_copy(verb: object) -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(8) if verb is quietnn.denoise_branches else nn.BatchNorm1d(8)
    network = nn.Sequential(nn.Linear(4, 8), norm, nn.ReLU(), nn.Linear(8, 3)).eval()
    observation = transmit(network, wnr_db=3.0, seed=0)
    before = {name: tensor.clone() for name, tensor in observation.received.state_dict().items()}
    takes = [name for name in ("inputs", "labels") if name in inspect.signature(verb).parameters]
    made = verb(observation, **{name: {"inputs": INPUTS, "labels": LABELS}[name] for name in takes})
    assert isinstance(made, quietnn.Repaired)
    assert made.name in REPAIRS
    assert repr(made).startswith(f"Repaired({made.name!r}, ")
    assert all(torch.equal(tensor, before[name]) for name, tensor in observation.received.state_dict().items())
    shared = {tensor.data_ptr() for tensor in observation.received.state_dict().values()}
    assert shared.isdisjoint(tensor.data_ptr() for tensor in made.model.state_dict().values())


@pytest.mark.parametrize(
    ("method", "verb", "arguments"),
    [
        ("mmse", quietnn.denoise, ()),
        ("calibrated", quietnn.calibrate, (INPUTS,)),
        ("re_estimated", quietnn.re_estimate, (INPUTS,)),
        ("self_trained", quietnn.self_train, (INPUTS,)),
        ("posterior", quietnn.posterior, (INPUTS, LABELS)),
        ("finetuned", quietnn.finetune, (INPUTS, LABELS)),
        ("mmse_pb", quietnn.tune, (INPUTS, LABELS)),
    ],
)
def test_a_method_and_its_verb_do_the_same(
    network: nn.Module, method: str, verb: object, arguments: tuple[object, ...]
) -> None:
    observation = transmit(network, wnr_db=3.0, seed=0)
    by_name, by_verb = repair(observation, *arguments, method=method), verb(observation, *arguments)
    assert by_name.name == by_verb.name == method
    assert by_name.passes == by_verb.passes
    expected = by_verb.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in by_name.model.state_dict().items())


def test_an_observation_a_variance_and_a_wnr_say_the_same(network: nn.Module) -> None:
    told = repair(Observation(network, 0.02), INPUTS, method="calibrated").model
    given = repair(network, INPUTS, method="calibrated", noise_variance=0.02).model
    assert torch.equal(told[1].running_var, given[1].running_var)
    noise = quietnn.observe(network, wnr_db=5.0).noise_variance
    by_wnr = repair(network, INPUTS, method="calibrated", wnr_db=5.0).model
    by_noise = repair(network, INPUTS, method="calibrated", noise_variance=noise).model
    assert torch.equal(by_wnr[1].running_var, by_noise[1].running_var)


@pytest.mark.parametrize("what", ["state dict", "tensor"])
def test_state_dicts_and_tensors_can_be_denoised_and_no_more(network: nn.Module, what: str) -> None:
    given = network.state_dict() if what == "state dict" else network[0].weight.detach()
    assert type(repair(given, method="mmse", noise_variance=0.01).model) is type(given)
    assert repair(given, noise_variance=0.01).name == "ml"
    with pytest.raises(QuietnnError, match=r"load it first, model.load_state_dict\(state\)"):
        repair(given, INPUTS, method="calibrated", noise_variance=0.01)


def test_a_score_alone_is_enough_to_search_temperatures(network: nn.Module) -> None:
    length = lambda one: one[0].weight.detach().norm()  # noqa: E731
    found = repair(network, method="mmse_pb", wnr_db=0.0, score=length, higher_is_better=False)
    assert found.details["temperatures"].lambda_prime == 0.0
    with pytest.raises(QuietnnError, match="posterior goes by the loss and not by a score"):
        repair(network, method="posterior", wnr_db=0.0, score=length)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "calibrated", "balanced_classes": True}, "balanced_classes is for auto"),
        ({"labels": True, "balanced_classes": True}, "stands in for labels"),
        ({"settings": quietnn.PosteriorSettings()}, "auto takes no settings"),
        ({"method": "calibrated", "score": lambda network: 0.0}, "goes by the loss and not by a score"),
        ({"higher_is_better": False}, "higher_is_better is for a score"),
    ],
)
def test_an_argument_without_effect_is_refused(arguments: dict[str, object], message: str) -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    labels = torch.arange(20) % 3 if arguments.pop("labels", False) else None
    with pytest.raises(QuietnnError, match=message):
        quietnn.repair(network, torch.rand(20, 4), labels, noise_variance=0.01, **arguments)


def test_auto_searches_by_no_score_that_sees_what_is_held_out() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    inputs, labels = torch.rand(20, 4), torch.arange(20) % 3

    def spy(model: nn.Module) -> float:
        raise AssertionError("it was asked")

    result = quietnn.repair(network, inputs, labels, noise_variance=0.01, score=spy, max_passes=30)
    assert "not by the score" in result.details["notes"][0]
