"""BatchNorms that follow the weights: every kind of layer, every way of calling it, and the same numbers."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from quietnn.channels.transmit import transmit
from quietnn.evidence import Evidence
from quietnn.losses import Loss
from quietnn.observation import Observation
from quietnn.repairs.fitting.moving_statistics import Blending
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import repaired
from quietnn.repairs.fitting.whitened import PosteriorSettings, Whitened, maximise
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.posterior import posterior
from quietnn.targets import noisy_weights

LABELS = torch.arange(60) % 3


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Activated(nn.BatchNorm1d):
    """Normalises and activates in one layer, as timm has it."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(super().forward(input))


class ByKeyword(nn.Module):
    """Calls its BatchNorm by keyword, and looks at its statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        assert self.norm.running_mean is not None
        assert self.norm.num_features == len(self.norm.running_mean)
        return torch.as_tensor(self.last(functional.relu(self.norm(input=self.first(inputs)))))


class Checkpointed(nn.Sequential):
    """Keeps no activations for the way back."""

    def forward(self, input: Tensor) -> Tensor:
        return torch.as_tensor(checkpoint(super().forward, input, use_reentrant=False))


class Shared(nn.Module):
    """Two layers with one BatchNorm, and one with its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.shared, self.own, self.head = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.shared(self.second(functional.relu(self.shared(self.first(inputs)))))
        return torch.as_tensor(self.head(self.own(self.third(hidden))))


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()


def activated() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), Activated(6), nn.Identity(), nn.Linear(6, 3)).eval()


def by_keyword() -> nn.Module:
    torch.manual_seed(0)
    return ByKeyword().eval()


def checkpointed() -> nn.Module:
    torch.manual_seed(0)
    return Checkpointed(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()


def in_chunks(inputs: Tensor, size: int) -> Loss:
    """The same mean loss, with the network called for a few examples at a time."""

    def loss(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        outputs = torch.cat([network(inputs[part]) for part in positions.split(size)])
        return functional.cross_entropy(outputs, LABELS[positions])

    return loss


@pytest.mark.parametrize("shape", [(200, 4), (50, 4, 6), (50, 4, 3, 3)])
def test_blended_statistics_lie_between_the_stored_ones_and_the_batch(shape: tuple[int, ...]) -> None:
    layer = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](4).eval()
    network = nn.Sequential(layer)
    blending = Blending(network, lambda: network(torch.zeros(shape)[:2]))
    with blending:
        network(points(*shape) * 3 + 5)
    mean, variance = blending.statistics()["0"]
    assert torch.allclose(mean, torch.full((4,), 5.0), atol=0.5), "a large change is followed"
    assert torch.allclose(variance, torch.full((4,), 9.0), rtol=0.3)
    batch = points(*shape, seed=1)
    with blending:
        out = network(batch)
    mean, _ = blending.statistics()["0"]
    assert mean.abs().sum() <= batch.transpose(0, 1).flatten(1).mean(1).abs().sum(), "the sampling error is not"
    assert out.shape == batch.shape
    assert torch.equal(layer.running_mean, torch.zeros(4)), "the layer itself stays as it is"


def test_a_single_example_uses_the_stored_statistics() -> None:
    network, inputs = plain(), points(1, 4)
    expected = network(inputs)
    with Blending(network, lambda: network(inputs)):
        assert torch.equal(network(inputs), expected)


@pytest.mark.parametrize("network", [activated, by_keyword, checkpointed])
def test_what_a_layer_does_besides_and_how_it_is_called_makes_no_difference(network: Callable[[], nn.Module]) -> None:
    """The same weights in another dress: statistics, gradients and posterior are those of the plain network."""
    inputs = points(60, 4) + 2 * functional.one_hot(LABELS, 4)
    evidence, positions = Evidence(inputs, LABELS), torch.arange(60)
    found = []
    for made in (plain(), network()):
        weights = noisy_weights(made)
        scratch = Scratch(Observation(made, None), evidence, blended=True)
        value, gradients = scratch.gradient(weights, positions, torch.Generator())
        finished = scratch.finish(made, weights)
        result = posterior(
            made,
            evidence,
            noise_variance=0.05,
            settings=PosteriorSettings(num_steps=4),
        )
        assert result.details["chosen"] == "posterior"
        tensors = [*gradients.values(), *finished.state_dict().values(), *result.model.state_dict().values()]
        found.append((value, tensors, len(scratch.scale_free())))
    assert found[0][0] == found[1][0]
    assert found[0][2] == found[1][2] == 2
    assert all(torch.equal(one, other) for one, other in zip(found[0][1], found[1][1], strict=True))
    assert not torch.equal(plain()[1].running_mean, found[0][1][6]), "something must have been followed"


@pytest.mark.parametrize("size", [1, 7, 30])
def test_statistics_are_those_of_all_calls_of_a_pass(size: int) -> None:
    network, inputs = plain(), 3 * points(60, 4) + 1
    inputs[:50] += 2  # so that the last chunk is unlike the others
    weights = noisy_weights(network)
    whole, parts = (
        Scratch(Observation(network, None), Evidence(mean_loss=loss, num_examples=60), blended=True).finish(
            network, weights
        )
        for loss in (in_chunks(inputs, 60), in_chunks(inputs, size))
    )
    assert not torch.allclose(network[1].running_mean, whole[1].running_mean, atol=0.5)
    torch.testing.assert_close(parts[1].running_mean, whole[1].running_mean)
    torch.testing.assert_close(parts[1].running_var, whole[1].running_var)


def test_statistics_of_an_earlier_pass_are_forgotten() -> None:
    network, inputs = plain(), points(60, 4)
    blending = Blending(network, lambda: network(inputs[:2]))
    found = []
    for other in (inputs, 100 + inputs, inputs):
        with blending:
            network(other)
        found.append(blending.statistics()["1"][0])
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


def test_a_batch_norm_called_twice_keeps_its_statistics_and_its_layers_their_scale() -> None:
    torch.manual_seed(0)
    network, inputs = Shared().eval(), 3 * points(60, 4) + 1
    scratch = Scratch(
        Observation(network, None), Evidence(mean_loss=in_chunks(inputs, 60), num_examples=60), blended=True
    )
    finished = scratch.finish(network, noisy_weights(network))
    assert torch.equal(finished.shared.running_mean, network.shared.running_mean)
    assert torch.equal(finished.shared.running_var, network.shared.running_var)
    assert not torch.equal(finished.own.running_mean, network.own.running_mean)
    assert scratch.scale_free() == {"third.weight", "third.bias"}
    with torch.no_grad():  # what is judged is the network that is returned
        expected = float(functional.cross_entropy(finished(inputs), LABELS))
    assert scratch.judge(noisy_weights(network), torch.arange(60)) == pytest.approx(expected, rel=1e-5)


def test_a_shared_weight_is_free_only_if_every_use_of_it_is() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, inputs: Tensor) -> Tensor:
            return torch.as_tensor(self.inner(self.norm(self.inner(inputs))))

    network = Twice().eval()
    run = lambda: network(torch.rand(5, 4))  # noqa: E731
    assert not Blending(network, run).scale_free(run)


def test_a_child_class_with_arithmetic_of_its_own_keeps_its_statistics() -> None:
    class Own(nn.BatchNorm1d):
        def forward(self, input: Tensor) -> Tensor:
            return (input - self.running_mean) / (self.running_var + self.eps).sqrt()

    network = nn.Sequential(nn.Linear(4, 3), Own(3)).eval()
    inputs = 3 * points(60, 4) + 1
    scratch = Scratch(Observation(network, None), Evidence(inputs, LABELS), blended=True)
    finished = scratch.finish(network, noisy_weights(network))
    assert torch.equal(finished[1].running_mean, network[1].running_mean)
    assert not scratch.scale_free()


def test_a_network_that_counts_its_calls_is_not_called_itself() -> None:
    class Counting(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls += 1
            return torch.as_tensor(self.network(inputs))

    observation = transmit(Counting(plain()), wnr_db=0.0, seed=0)
    result = posterior(
        observation,
        Evidence(points(60, 4), LABELS),
        settings=PosteriorSettings(num_steps=2),
    )
    assert int(observation.received.calls) == int(result.model.calls) == 0


@pytest.mark.parametrize("switched_off", [torch.inference_mode, torch.no_grad])
def test_the_caller_may_have_switched_gradients_off(switched_off: Callable[[], object]) -> None:
    observation = transmit(plain(), wnr_db=0.0, seed=0)
    evidence, settings = Evidence(points(60, 4), LABELS), PosteriorSettings(num_steps=3)

    def run() -> nn.Module:
        return posterior(
            observation,
            evidence,
            settings=settings,
        ).model

    expected = run()
    with switched_off():
        found = run()
    assert all(torch.equal(tensor, expected.state_dict()[name]) for name, tensor in found.state_dict().items())
    assert not any(tensor.is_inference() for tensor in found.parameters())


def test_a_layer_whose_output_is_used_elsewhere_keeps_its_scale() -> None:
    class PreActivation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.inner = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
            self.norm2, self.head = nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            made = self.stem(inputs)
            return torch.as_tensor(self.head(self.norm2(self.inner(self.norm(made).relu())) + made))

    torch.manual_seed(0)
    network = PreActivation().eval()
    before = copy.deepcopy(network.state_dict())
    scratch = Scratch(Observation(network, None), Evidence(points(60, 4), LABELS), blended=True)
    assert scratch.scale_free() == {"inner.weight", "inner.bias"}
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_only_layers_that_are_linear_in_their_weights_have_a_scale() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    scratch = Scratch(Observation(network, None), Evidence(points(60, 4), LABELS), blended=True)
    assert not scratch.scale_free()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_weights_of_sixteen_bits_move(dtype: torch.dtype, is_mixed: bool) -> None:
    """A step is smaller than they can tell apart, and BatchNorm may have more bits than they have."""

    class Mixed(nn.BatchNorm1d):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input.float()).to(input.dtype) if is_mixed else super().forward(input)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 16), Mixed(16), nn.ReLU(), nn.Linear(16, 3)).to(dtype).eval()
    if is_mixed:
        network[1].float()
    observation = transmit(network, wnr_db=0.0, seed=0)
    inputs = points(60, 4).to(dtype)
    weights = noisy_weights(observation.received)
    by_group = GroupedWeights.of(weights, observation.noise_variance, groups="layerwise")
    scratch = Scratch(observation, Evidence(inputs, LABELS), blended=True)
    scratch.anchor(next(repaired(Observation(observation.received, 0.1), Evidence(inputs))).model)
    fit = maximise(scratch, Whitened.of(by_group, weights), torch.arange(60))
    assert fit.move > 0
    assert fit.losses[-1] < fit.losses[0] < 10
    assert all(tensor.dtype == dtype and not torch.equal(tensor, weights[name]) for name, tensor in fit.weights.items())
    finished = scratch.finish(observation.received, fit.weights)
    assert {tensor.dtype for tensor in finished.buffers()} == {tensor.dtype for tensor in network.buffers()}


def test_examples_one_by_one_are_judged_by_the_statistics_of_the_start() -> None:
    observation = transmit(plain(), wnr_db=0.0, seed=0)
    inputs = points(60, 4)
    whole = Evidence(inputs, LABELS).loss_at

    def one_by_one(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.stack([whole(network, position[None], generator) for position in positions]).mean()

    starts = {one.name: one.model for one in repaired(observation, Evidence(inputs))}
    scratch = Scratch(observation, Evidence(mean_loss=one_by_one, num_examples=60), blended=True)
    scratch.anchor(starts["calibrated"])
    everything = torch.arange(60)
    found = scratch.judge(noisy_weights(observation.received), everything)
    assert found == pytest.approx(float(scratch.judge_parts(starts["calibrated"], [everything])), rel=1e-5)


def test_a_child_class_with_arithmetic_of_its_own_keeps_the_statistics_of_the_start() -> None:
    class Own(nn.BatchNorm1d):
        def forward(self, input: Tensor) -> Tensor:
            return (input - self.running_mean) / (self.running_var + self.eps).sqrt()

    network = nn.Sequential(nn.Linear(4, 8), Own(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    observation = transmit(network.eval(), wnr_db=0.0, seed=0)
    inputs = 3 * points(60, 4) + 1
    starts = {one.name: one.model for one in repaired(observation, Evidence(inputs))}
    settings = PosteriorSettings(num_steps=1, num_guard_steps=1, step_size=1e-6)
    evidence = Evidence(inputs, LABELS)
    result = posterior(
        observation,
        evidence,
        settings=settings,
    )
    assert result.details["held_out_loss"]["posterior"] == pytest.approx(
        result.details["held_out_loss"]["calibrated"], rel=1e-4
    )
    assert torch.equal(result.model[1].running_mean, starts["calibrated"][1].running_mean)


def test_dead_channels_do_not_hide_that_a_scale_is_undone() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    with torch.no_grad():
        network[0].weight[:4] = 0.0
        network[0].weight[4] *= 1e-6
    scratch = Scratch(Observation(network, None), Evidence(points(60, 4), LABELS), blended=True)
    assert scratch.scale_free() == {"0.weight", "0.bias", "3.weight", "3.bias"}
