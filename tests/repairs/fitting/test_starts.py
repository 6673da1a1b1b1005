"""Where fits begin, and what a start may differ in."""

from collections.abc import Mapping

import pytest
import torch
from tests.repairs.blobs import blobs, norm_net, trained
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import QuietnnError
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import Start, in_one_pass, prepare, repaired
from quietnn.repairs.fitting.whitened import Fit, PosteriorSettings, Whitened, maximise
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.posterior import posterior
from quietnn.targets import noisy_weights


class Encoder(nn.Sequential):
    """Outputs that are no logits."""

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        return {"last_hidden_state": super().forward(inputs)}


def test_a_head_that_cannot_be_centred_has_no_start_and_mistakes_are_told() -> None:
    layers = [nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 3)]
    inputs = blobs()[0]
    without_bias = nn.Sequential(*layers[:2], nn.Linear(16, 3, bias=False))
    assert [one.name for one in repaired(Observation(without_bias, 0.1), Evidence(inputs))] == ["directions"]
    assert [one.name for one in repaired(Observation(Encoder(*layers), 0.1), Evidence(inputs))] == ["directions"]
    assert [one.name for one in repaired(Observation(nn.Sequential(*layers), 0.1), Evidence(inputs[:1]))] == [
        "directions"
    ]
    with pytest.raises(QuietnnError, match="nope"):
        list(repaired(Observation(nn.Sequential(*layers), {"nope": 0.1}), Evidence(inputs)))


def test_a_bias_without_noise_is_not_centred() -> None:
    """Steps are taken on the network as it came; another bias would make it a third network."""
    received = transmit(trained(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 3)), wnr_db=3.0, seed=1).received
    names = ("0.weight", "0.bias", "2.weight")
    assert [one.name for one in repaired(Observation(received, 0.1), Evidence(blobs()[0]))] == ["directions", "centred"]
    assert [one.name for one in repaired(Observation(received, 0.1, noisy=names), Evidence(blobs()[0]))] == [
        "directions"
    ]


def test_a_start_that_is_shorter_is_left_by_shorter_steps() -> None:
    """Where a scale is undone, the spread is as much shorter as the weights are."""
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    by_group = GroupedWeights.of(observation.weights, observation.noise_variance, groups="layerwise")
    scratch = Scratch(observation, Evidence(*blobs()), blended=True)
    long = Start(observation.received, observation.weights)
    short = Start(observation.received, {name: 0.5 * tensor for name, tensor in observation.weights.items()})
    spread, shorter = (prepare(scratch, start, by_group).spread for start in (long, short))
    assert shorter["0.weight"] == pytest.approx(0.5 * spread["0.weight"])
    assert shorter["3.weight"] == spread["3.weight"]


def test_the_steps_are_as_long_as_a_scale_that_is_undone_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = transmit(norm_net(), wnr_db=-3.0, seed=1)
    evidence = Evidence(*blobs())
    used: list[Whitened] = []

    def spy(scratch: Scratch, whitened: Whitened, *args: object, **options: object) -> Fit:
        used.append(whitened)
        return maximise(scratch, whitened, *args, **options)

    monkeypatch.setattr("quietnn.repairs.fitting.within.maximise", spy)
    posterior(
        observation,
        evidence,
        settings=PosteriorSettings(num_steps=2),
    )
    weights = noisy_weights(observation.received)
    by_group = GroupedWeights.of(weights, observation.noise_variance, groups="layerwise")
    usual = Whitened.of(by_group, weights).spread
    free = Whitened.of(by_group, weights, Scratch(observation, evidence, blended=True).scale_free()).spread
    assert len(used) == 3
    assert all(whitened.spread == free for whitened in used)
    assert free["0.weight"] > 1.2 * usual["0.weight"]
    assert free["3.weight"] == usual["3.weight"]


def test_a_start_is_calibrated_by_what_runs_at_once_whatever_the_order() -> None:
    observation = transmit(norm_net(), wnr_db=0.0, seed=0)
    inputs, labels = blobs(1024)
    by_class = Evidence(inputs[labels.argsort()])
    made = in_one_pass(calibrate, observation, by_class)
    assert made.passes == 0.25
    direct = calibrate(observation, by_class.inputs[::4]).model
    assert torch.equal(made.model[1].running_mean, direct[1].running_mean)
    of_all = calibrate(observation, inputs).model[1]
    assert (made.model[1].running_mean - of_all.running_mean).abs().max() < 0.2 * of_all.running_var.sqrt().mean()


def test_the_structured_start_has_the_length_of_the_received_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3)
    ).eval()
    with torch.no_grad():
        network[0].weight.copy_(torch.randn(64, 3, 1, 1).expand(64, 3, 3, 3))  # a structure that shows
    observation = transmit(network, wnr_db=-6.0, seed=0)
    images, labels = torch.rand(20, 3, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    finish, starts = Scratch.finish, []

    def spy(scratch: Scratch, model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
        starts.append(weights)
        return finish(scratch, model, weights)

    monkeypatch.setattr(Scratch, "finish", spy)
    settings = PosteriorSettings(num_steps=1)
    alone = Evidence(mean_loss=Evidence(images, labels).loss_at, num_examples=20)
    posterior(observation, alone, settings=settings)
    received, structured = starts[0]["0.weight"], starts[1]["0.weight"]
    assert float(structured.norm()) == pytest.approx(float(received.norm()), rel=1e-5)
    assert not torch.allclose(structured, received, atol=0.1), "short of what was taken for noise, it would be shorter"


@pytest.mark.parametrize("trainable", ["weights", "digital"])
def test_a_bias_without_noise_in_front_of_a_batch_norm(trainable: str) -> None:
    observation = transmit(norm_net(), wnr_db=3.0, seed=1)
    only = Observation(observation.received, observation.noise_variance, noisy=("0.weight", "3.weight"))
    made = posterior(only, *blobs(), trainable=trainable)
    assert "posterior" in made.details["held_out_loss"]
    if trainable == "weights":
        assert torch.equal(made.model[0].bias, observation.received[0].bias)
