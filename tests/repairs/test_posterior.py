"""The posterior against its closed form, and its promises to the caller."""

import copy
import math
from collections.abc import Callable, Mapping

import pytest
import torch
from tests.repairs.blobs import blobs, norm_net, plain_net, trained
from torch import Tensor, nn

import quietnn
from quietnn.channels.table import channel_named
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import Start, repaired
from quietnn.repairs.fitting.whitened import PosteriorSettings
from quietnn.repairs.posterior import posterior
from quietnn.score import Split, folds
from quietnn.targets import noisy_weights, with_weights

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


def loss_alone(inputs: Tensor, labels: Tensor) -> Evidence:
    """What does not say what the inputs are, so that nothing can be calibrated."""
    return Evidence(mean_loss=Evidence(inputs, labels).loss_at, num_examples=len(labels))


@pytest.mark.parametrize("network", [plain_net, norm_net])
def test_without_noise_everything_comes_back_bit_for_bit(network: Callable[[], nn.Module], snapshot: Snapshot) -> None:
    model = network()
    result = posterior(model, Evidence(*blobs()), noise_variance=0.0)
    assert snapshot(result.model.state_dict()) == snapshot(model.state_dict())
    assert result.model is not model
    assert result.passes == 0


@pytest.mark.parametrize("network", [plain_net, norm_net])
@pytest.mark.parametrize("seed", range(3))
def test_on_the_held_out_evidence_the_result_is_the_fit_or_the_best_start(
    network: Callable[[], nn.Module], seed: int
) -> None:
    observation = transmit(network(), wnr_db=-3.0, seed=seed)
    result = posterior(observation, loss_alone(*blobs()), settings=PosteriorSettings(num_steps=8), seed=seed)
    without_labels = {name: loss for name, loss in result.details["held_out_loss"].items() if name != "posterior"}
    assert result.details["chosen"] == "posterior" or result.details["held_out_loss"][result.details["chosen"]] == min(
        without_labels.values()
    )
    assert set(result.details["held_out_loss"]) >= {"received", "blended", "posterior"}
    assert ("mmse" in result.details["held_out_loss"]) == (network is plain_net)


@pytest.mark.parametrize("alone", [False, True])
def test_the_verdict_is_on_examples_that_the_judged_network_did_not_see(alone: bool) -> None:
    """The labels of one half change what its fit learns, and so the losses of the other half; its own stay."""
    inputs, labels = blobs()
    observation, split = transmit(norm_net(), wnr_db=-3.0, seed=0), folds(len(labels), 2, seed=0)[0]
    other = labels.clone()
    other[split.fit[:3]] = (labels[split.fit[:3]] + 1) % 3
    make = loss_alone if alone else Evidence
    settings = PosteriorSettings(num_steps=1)

    def verdict(known: Tensor) -> Tensor:
        result = posterior(observation, make(inputs, known), settings=settings)
        assert result.details["chosen"] == "posterior"
        found = result.details["held_out"]
        assert (found.right is None) == alone
        assert float(found.losses.mean()) == pytest.approx(result.details["held_out_loss"]["posterior"])
        return found.losses

    assert not torch.equal(verdict(labels)[split.held_out], verdict(other)[split.held_out])
    changed = labels.clone()
    changed[split.held_out[:1]] = (labels[split.held_out[:1]] + 1) % 3
    before, after = verdict(labels), verdict(changed)
    untouched = split.held_out[10:] if alone else split.held_out[1:]
    assert torch.equal(before[untouched], after[untouched])
    assert after[split.held_out[0]] != before[split.held_out[0]]


def test_a_start_that_is_better_by_far_is_returned_as_it_is(snapshot: Snapshot) -> None:
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    # steps that lead nowhere near
    wild = PosteriorSettings(num_steps=1, num_guard_steps=1, step_size=1e4, prior=0.0)
    best = posterior(observation, *blobs(), settings=wild)
    assert best.details["chosen"] == "calibrated"
    start = next(repaired(observation, Evidence(blobs()[0])))
    assert snapshot(best.model.state_dict()) == snapshot(start.model.state_dict())
    losses = best.details["held_out_loss"]
    assert losses["posterior"] > losses["received"] > losses["calibrated"]


def test_steps_from_a_start_begin_with_its_own_statistics() -> None:
    """A hundredth of a step leaves the network where calibration put it; blended statistics would be elsewhere."""
    inputs, labels = blobs()
    evidence = Evidence(inputs, labels)
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    starts = {one.name: one.model for one in repaired(observation, Evidence(inputs))}
    assert list(starts) == ["calibrated"]
    settings = PosteriorSettings(num_steps=1, num_guard_steps=1, step_size=1e-6)
    result = posterior(
        observation,
        evidence,
        settings=settings,
    )
    assert result.details["chosen"] == "posterior"
    assert result.details["held_out_loss"]["posterior"] == pytest.approx(
        result.details["held_out_loss"]["calibrated"], rel=1e-4
    )
    for name, tensor in starts["calibrated"].state_dict().items():
        assert torch.allclose(result.model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5), name
    alone = posterior(observation, loss_alone(inputs, labels), settings=settings)
    assert alone.details["held_out_loss"]["posterior"] != pytest.approx(
        result.details["held_out_loss"]["posterior"], rel=1e-3
    )


def test_starts_are_made_where_there_are_inputs() -> None:
    inputs, labels = blobs()
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    settings = PosteriorSettings(num_steps=2)
    made = posterior(observation, inputs, labels, settings=settings)
    assert set(made.details["held_out_loss"]) == {"received", "calibrated", "posterior"}
    alone = posterior(observation, loss_alone(inputs, labels), settings=settings)
    assert set(alone.details["held_out_loss"]) == {"received", "blended", "structured", "posterior"}


def test_gain_and_offset_are_undone_first() -> None:
    observation = transmit(plain_net(), wnr_db=0.0, seed=1)
    scaled = with_weights(
        observation.received, {n: 2 * w + 0.5 for n, w in noisy_weights(observation.received).items()}
    )
    twice = Observation(scaled, observation.noise_variance, gain=2.0, offset=0.5)
    settings = PosteriorSettings(num_steps=3)
    one, other = (posterior(what, *blobs(), settings=settings) for what in (observation, twice))
    torch.testing.assert_close(one.model[0].weight, other.model[0].weight, atol=1e-3, rtol=1e-3)


def test_statistics_that_were_fitted_wrongly_to_rounded_weights_are_not_where_steps_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The examples' own are clearly better on the half that they were not taken from."""
    rounded = transmit(norm_net(), channel=channel_named("quantise", 2), seed=0).at_unit_gain()
    broken = copy.deepcopy(rounded.received)
    broken[1].running_mean.add_(10 * broken[1].running_var.sqrt())
    start = Start(broken, noisy_weights(broken), is_anchor=True)
    settings = PosteriorSettings(num_steps=1, num_guard_steps=1, step_size=1e-6)
    alone = posterior(rounded, loss_alone(*blobs()), settings=settings)
    monkeypatch.setattr("quietnn.repairs.posterior.starts_of", lambda *_: iter([("calibrated", start)]))
    result = posterior(rounded, *blobs(), settings=settings)
    assert result.details["held_out_loss"]["blended"] < result.details["held_out_loss"]["calibrated"]
    for name, tensor in alone.model.state_dict().items():
        assert torch.allclose(result.model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5), name
    assert posterior(rounded, *blobs()).passes <= 150


def test_noise_is_taken_at_its_word() -> None:
    """Whatever the examples' own statistics would be worth, those of a start were fitted to what noise does."""
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    result = posterior(observation, Evidence(*blobs()))
    assert "blended" not in result.details["held_out_loss"]


def test_a_network_that_normalises_each_input_may_begin_at_a_centred_head() -> None:
    clean = trained(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))
    observation = transmit(clean, wnr_db=6.0, seed=1)
    with torch.no_grad():
        observation.received[3].bias.add_(torch.tensor([4.0, 0.0, 0.0]))  # a preference for one class
    inputs, labels = blobs()
    starts = {one.name: one.model for one in repaired(observation, Evidence(inputs))}
    assert list(starts) == ["directions", "centred"]
    settings = PosteriorSettings(num_steps=1, num_guard_steps=1, step_size=1e-6)
    result = posterior(
        observation,
        Evidence(inputs, labels),
        settings=settings,
    )
    assert set(result.details["held_out_loss"]) == {
        "received",
        "centred",
        "directions",
        "blended",
        "mmse",
        "branches",
        "posterior",
    }
    assert min(result.details["held_out_loss"], key=lambda name: result.details["held_out_loss"][name]) in (
        "centred",
        "posterior",
    )
    assert torch.allclose(result.model[3].bias, starts["centred"][3].bias, atol=1e-3)


def test_a_compiled_network_is_repaired_as_it_was_written() -> None:
    """Statistics that follow the weights hang on hooks; nothing is compiled for them, and the result is the same."""
    inputs, labels = blobs()
    received = transmit(norm_net(), wnr_db=-3.0, seed=1).received
    num_compiled = 0

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        nonlocal num_compiled
        num_compiled += 1
        return graph.forward

    results = []
    for network in (received, torch.compile(received, backend=backend)):
        list(repaired(Observation(network, 0.1), Evidence(inputs)))
        evidence = Evidence(inputs, labels)
        Scratch(Observation(network, None), evidence, blended=True).gradient(
            noisy_weights(network), torch.arange(60), torch.Generator()
        )
        assert num_compiled == 0
        results.append(posterior(network, evidence, noise_variance=0.1))
    plain, compiled = results
    assert plain.details["held_out_loss"] == pytest.approx(compiled.details["held_out_loss"], rel=1e-5)
    for name, tensor in plain.model.state_dict().items():
        torch.testing.assert_close(compiled.model.state_dict()[f"_orig_mod.{name}"], tensor, rtol=1e-4, atol=1e-5)


def test_a_fit_that_harms_is_rejected() -> None:
    observation = transmit(plain_net(), wnr_db=20.0, seed=0)
    inputs, labels = blobs()
    held_out = folds(60, 2, seed=0)[0].held_out
    wrong = labels.clone()
    wrong[held_out] = (labels[held_out] + 1) % 3
    result = posterior(
        observation,
        Evidence(inputs, wrong),
        settings=PosteriorSettings(num_steps=10, step_size=2.0, prior=0.0),
    )
    assert result.details["chosen"] != "posterior"
    assert (result.details["fit_loss"], result.details["move"]) == ((), 0.0)


@pytest.mark.parametrize("network", [plain_net, norm_net])
def test_labels_repair_a_noisy_network(network: Callable[[], nn.Module]) -> None:
    inputs, labels = blobs(300)
    evidence = Evidence(inputs, labels)
    observation = transmit(network(), wnr_db=-3.0, seed=1)
    result = posterior(observation, Evidence(*blobs()))
    before, after = (
        evidence.loss_at(net.eval(), torch.arange(300), None).item() for net in (observation.received, result.model)
    )
    assert result.details["chosen"] == "posterior"
    assert after < 0.5 * before
    assert result.details["fit_loss"][-1] < result.details["fit_loss"][0]
    assert 0 < result.details["move"] < 2.0
    assert result.passes <= 150


def test_many_labels_are_taken_in_mini_batches_by_shorter_steps() -> None:
    """Four times as many labels: twice as many steps on a quarter of them, which costs two thirds of the passes."""
    observation, (inputs, labels) = transmit(norm_net(), wnr_db=-6.0, seed=3), blobs(2400)
    results = {size: posterior(observation, inputs[:size], labels[:size], augment=False, seed=0) for size in (100, 400)}
    assert {size: len(result.details["fit_loss"]) for size, result in results.items()} == {100: 32, 400: 64}
    assert results[400].passes < 0.7 * results[100].passes
    with torch.no_grad():
        loss = {
            size: float(nn.functional.cross_entropy(result.model(inputs[400:]), labels[400:]))
            for size, result in results.items()
        }
    assert loss[400] < loss[100], loss


def test_the_callers_network_is_left_alone_and_so_are_modes_and_frozen_flags(snapshot: Snapshot) -> None:
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    model = observation.received.train()
    model[0].weight.requires_grad_(False)
    before = snapshot(model.state_dict())
    result = posterior(model, Evidence(*blobs()), noise_variance=observation.noise_variance)
    assert snapshot(model.state_dict()) == before
    assert all(layer.training for layer in model.modules())
    assert all(layer.training for layer in result.model.modules())
    flags = {name: parameter.requires_grad for name, parameter in result.model.named_parameters()}
    assert flags == {name: name != "0.weight" for name in flags}
    assert all(parameter.grad is None for parameter in model.parameters())
    assert result.details["chosen"] == "posterior"
    assert not torch.equal(result.model[0].weight, model[0].weight), "a frozen weight is as noisy as any other"
    assert torch.equal(result.model[1].weight, model[1].weight)
    assert not torch.equal(result.model[1].running_mean, model[1].running_mean)
    assert int(result.model[1].num_batches_tracked) == int(model[1].num_batches_tracked)


def test_shared_layers_and_tied_weights_stay_shared() -> None:
    torch.manual_seed(0)
    shared, norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
    model = nn.Sequential(shared, norm, nn.ReLU(), shared, norm, nn.Linear(8, 3))
    observation = transmit(model.eval(), wnr_db=0.0, seed=0)
    settings = PosteriorSettings(num_steps=10)
    result = posterior(
        observation, Evidence(*blobs()),
        settings=settings,
    )  # fmt: skip
    assert result.details["chosen"] == "posterior"
    assert result.model[0].weight is result.model[3].weight
    assert result.model[1] is result.model[4]


def test_the_seed_decides_and_nothing_else() -> None:
    observation = transmit(plain_net(), wnr_db=-3.0, seed=1)

    def jitter(inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)

    def run(seed: int) -> Tensor:
        torch.manual_seed(torch.seed() % 1000)
        result = posterior(
            observation,
            Evidence(*blobs(), augment=jitter),
            settings=PosteriorSettings(num_steps=6),
            seed=seed,
        )
        weight: Tensor = result.model[0].weight
        return weight

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_settings_and_sizes_are_checked() -> None:
    for wrong in (
        {"num_steps": 0},
        {"num_guard_steps": 0},
        {"step_size": 0.0},
        {"step_size": math.nan},
        {"prior": -1.0},
    ):
        with pytest.raises(InvalidConfig, match=next(iter(wrong))):
            PosteriorSettings(**wrong)
    with pytest.raises(InvalidConfig, match="2 or more"):
        Split.of(1, 0.2, seed=0)
    with pytest.raises(InvalidConfig, match="held_out"):
        Split.of(10, 1.0, seed=0)


def test_a_split_is_a_partition_with_something_on_either_side() -> None:
    for num_examples, fraction in ((2, 0.01), (2, 0.99), (100, 0.2)):
        split = Split.of(num_examples, fraction, seed=4)
        assert sorted([*split.fit.tolist(), *split.held_out.tolist()]) == list(range(num_examples))
        assert len(split.fit) > 0
        assert len(split.held_out) > 0


def test_every_example_is_held_out_once() -> None:
    splits = folds(11, 3, seed=2)
    assert sorted(position for split in splits for position in split.held_out.tolist()) == list(range(11))
    assert all(not set(split.fit.tolist()) & set(split.held_out.tolist()) for split in splits)
    assert all(len(split.fit) + len(split.held_out) == 11 for split in splits)
    with pytest.raises(InvalidConfig, match="num_folds"):
        folds(2, 3, seed=0)


def test_the_posterior_takes_noise_by_layer() -> None:
    network = trained(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    received = transmit(network, noise_variance=0.05, seed=0).received
    inputs, labels = blobs()
    evidence = Evidence(inputs, labels)
    noise = {"0": 0.05, "2": 0.05}
    one, by_layer = (posterior(received, evidence, noise_variance=variance) for variance in (0.05, noise))
    assert one.details["chosen"] == by_layer.details["chosen"]
    assert one.details["held_out_loss"]["posterior"] == pytest.approx(
        by_layer.details["held_out_loss"]["posterior"], rel=1e-3
    )


def _stripes(num: int, *, placed: bool) -> tuple[Tensor, Tensor]:
    """Smooth images whose class is the direction of a bright bar, or with `placed` the row it lies in."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num) % 3
    images = 0.1 * torch.randn(num, 1, 24, 24, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        at = 10 + 2 * label if placed else int(torch.randint(4, 16, (), generator=generator))
        if placed or label == 0:
            image[0, at : at + (2 if placed else 4)] += 1
        elif label == 1:
            image[0, :, at : at + 4] += 1
        else:
            image[0, at : at + 6, at : at + 6] += 1
    return images, labels


def _seeing(images: Tensor, labels: Tensor, *, placed: bool) -> nn.Module:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(1, 8, 5), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*([nn.Flatten()] if placed else convolutions), nn.Linear(576 if placed else 8, 3))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    return model.eval()


@pytest.mark.parametrize("placed", [False, True])
def test_images_are_shifted_where_nobody_spoke_of_variants_and_it_does_no_harm(placed: bool) -> None:
    images, labels = _stripes(60, placed=placed)
    observation = transmit(_seeing(images, labels, placed=placed), wnr_db=9.0, seed=0)
    told = posterior(observation, images, labels, settings=PosteriorSettings(num_steps=4, num_guard_steps=2))
    assert ("augment" in told.details) == (not placed)
    calls = []

    def own(inputs: Tensor, generator: torch.Generator) -> Tensor:
        calls.append(len(inputs))
        return inputs

    for given in (False, own):
        quiet = posterior(
            observation, images, labels, augment=given, settings=PosteriorSettings(num_steps=4, num_guard_steps=2)
        )
        assert "augment" not in quiet.details
    assert calls
    if not placed:
        assert told.details["augment"] == "images shifted by up to 3 pixels"
        assert told.passes == pytest.approx(quiet.passes + 1)
        assert not torch.equal(told.model[0].weight, quiet.model[0].weight)
        chosen = quietnn.repair(observation, images, labels)
        assert chosen.name != "posterior" or "it was fitted to images shifted by up to 3 pixels" in str(chosen)
