"""Many inputs, visited batch by batch: the result of all at once, with one batch in memory."""

import copy
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.evidence import Evidence
from quietnn.noise_power.batch_norm import noise_power_from_batch_norm
from quietnn.observation import Observation
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.calibrate import calibrate, calibrate_structured, mmse_calibrated, re_estimate
from quietnn.targets import noisy_weights
from quietnn.watching.samples import Visit
from quietnn.watching.visits import visit_batch_norms

NOISE = 0.02
NUM_IMAGES = 90
Method = Callable[[Observation, Evidence], Repaired]

METHODS: dict[str, Method] = {
    "calibrated": calibrate,
    "calibrated_balanced": lambda observation, evidence: calibrate(observation, evidence, balanced_classes=True),
    "structured": calibrate_structured,
    "mmse_calibrated": mmse_calibrated,
    "re_estimated": re_estimate,
}


def convolutional() -> nn.Sequential:
    """Groups, strides, biases, a sum of its own in front of no BatchNorm, and a last linear layer."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, groups=2),
        nn.BatchNorm2d(12),
        nn.ReLU(inplace=True),
        nn.BatchNorm2d(12),  # nothing with weights in front of it
        nn.Flatten(),
        nn.Linear(12 * 9, 10),
        nn.BatchNorm1d(10),
        nn.ReLU(),
        nn.Linear(10, 4),
    )


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(NUM_IMAGES, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def received(images: Tensor, network: nn.Module) -> nn.Module:
    """The network with statistics of its own and noise on its weights."""
    generator = torch.Generator().manual_seed(2)
    network.train()
    with torch.no_grad():
        for _ in range(20):
            network(images)
        for weight in noisy_weights(network).values():
            weight.add_(NOISE**0.5 * torch.randn(weight.shape, generator=generator) + 0.02)
    return network.eval()


@pytest.fixture(scope="module")
def observation(images: Tensor) -> Observation:
    torch.manual_seed(0)
    return Observation(received(images, convolutional()), NOISE)


def in_batches(images: Tensor, *, shuffle: bool = False, batch_size: int = 16) -> Evidence:
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(images), batch_size=batch_size, shuffle=shuffle, generator=generator)
    return Evidence(loader, batch_size=batch_size)


def assert_alike(one: nn.Module, other: nn.Module, *, rtol: float = 1e-4) -> None:
    """Up to rounding, which two calibrations one after the other make tenfold; and up to the images looked at first."""
    for name, value in one.state_dict().items():
        torch.testing.assert_close(
            other.state_dict()[name], value, rtol=rtol, atol=rtol / 10, msg=lambda m, n=name: n + m
        )


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batch_size", [16, 89])  # 89 leaves a batch of one image
def test_a_loader_gives_what_all_inputs_at_once_give(
    observation: Observation, images: Tensor, name: str, batch_size: int
) -> None:
    whole = METHODS[name](observation, Evidence(images))
    streamed = METHODS[name](observation, in_batches(images, batch_size=batch_size))
    assert_alike(whole.model, streamed.model)
    assert whole.passes == (2 if name == "structured" else 1)
    assert streamed.passes > 1.5


@pytest.mark.parametrize("name", METHODS)
def test_so_does_a_tensor_of_more_inputs_than_go_through_the_network_at_once(
    observation: Observation, images: Tensor, name: str
) -> None:
    whole, parts = (METHODS[name](observation, Evidence(images, batch_size=size)) for size in (NUM_IMAGES, 20))
    assert_alike(whole.model, parts.model)


@pytest.mark.parametrize("name", METHODS)
def test_a_loader_that_shuffles_anew_in_every_pass_gives_the_same(
    observation: Observation, images: Tensor, name: str
) -> None:
    loader = Reordered(images)
    streamed = METHODS[name](observation, Evidence(loader, batch_size=16))
    assert loader.num_reads > Reordered.NUM_IN_ORDER + 2
    looks_again = name == "structured"  # its second calibration looks at other first images
    assert_alike(METHODS[name](observation, Evidence(images)).model, streamed.model, rtol=2e-3 if looks_again else 1e-4)


class Reordered:
    """In order until the first images have been read, which are looked at one by one; then in ever another order."""

    NUM_IN_ORDER = 3
    """Whether there are many, the first images, and a survey that `structured` makes before."""

    def __init__(self, images: Tensor) -> None:
        self._images = images
        self.num_reads = 0

    def __iter__(self) -> Iterator[Tensor]:
        """Batches of 16."""
        self.num_reads += 1
        order = torch.randperm(NUM_IMAGES, generator=torch.Generator().manual_seed(self.num_reads))
        images = self._images if self.num_reads <= self.NUM_IN_ORDER else self._images[order]
        yield from images.split(16)


def test_a_real_loader_that_shuffles_gives_the_same_where_order_does_not_count(
    observation: Observation, images: Tensor
) -> None:
    whole = re_estimate(observation, Evidence(images))
    assert_alike(whole.model, re_estimate(observation, in_batches(images, shuffle=True)).model)
    calibrated_whole, streamed = (
        calibrate(observation, one).model for one in (Evidence(images), in_batches(images, shuffle=True))
    )
    for name, value in calibrated_whole.state_dict().items():  # other first images are asked for concentration
        torch.testing.assert_close(streamed.state_dict()[name], value, rtol=0.05, atol=0.01)


def test_the_noise_power_is_the_same(observation: Observation, images: Tensor) -> None:
    whole = noise_power_from_batch_norm(observation.model, images)
    streamed = noise_power_from_batch_norm(observation.model, in_batches(images))
    assert streamed.variance == pytest.approx(whole.variance, rel=1e-5)
    assert streamed.standard_error == pytest.approx(whole.standard_error, rel=1e-4)


def test_few_inputs_of_a_loader_are_gone_through_at_once(observation: Observation, images: Tensor) -> None:
    loader = DataLoader(TensorDataset(images), batch_size=16)
    streamed, whole = calibrate(observation, Evidence(loader)), calibrate(observation, Evidence(images))
    assert streamed.passes == 1
    for name, value in whole.model.state_dict().items():
        assert torch.equal(streamed.model.state_dict()[name], value)


def test_inputs_by_keyword_come_in_batches_too(images: Tensor) -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = convolutional()

        def forward(self, *, pixels: Tensor) -> dict[str, Tensor]:
            return {"logits": self.body(pixels)}

    torch.manual_seed(0)
    network = Keyword()
    received(images, network.body)
    evidence = [Evidence({"pixels": images}, batch_size=size) for size in (NUM_IMAGES, 16)]
    whole, parts = (calibrate(Observation(network, NOISE), one, balanced_classes=True) for one in evidence)
    assert_alike(whole.model, parts.model)
    assert whole.details["report"].head_weight == pytest.approx(parts.details["report"].head_weight, rel=1e-5)


def test_a_pass_counts_as_the_share_of_layers_that_it_ran(observation: Observation, images: Tensor) -> None:
    """Eight layers with parameters: the BatchNorms stand behind 1, 3, 4 and 6 of them."""
    evidence = in_batches(images)
    shares = (1 + 3 + 4 + 6) / 8
    first = 32 / NUM_IMAGES  # run once more at every stop, the same for all
    assert calibrate(observation, evidence).passes == pytest.approx(shares * (1 + first))
    balanced = calibrate(observation, evidence, balanced_classes=True)
    assert balanced.passes == pytest.approx(shares * (1 + first) + 1)


def test_nothing_behind_a_batch_norm_is_run_on_the_way_to_it(images: Tensor) -> None:
    torch.manual_seed(0)
    network = received(images, convolutional())
    sizes: list[int] = []
    network[-1].register_forward_hook(lambda _, args, __: sizes.append(len(args[0])))
    re_estimate(Observation(network, NOISE), in_batches(images))
    assert sizes == [2]  # the survey


def test_a_shared_batch_norm_is_left_alone(images: Tensor) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
            self.shared, self.last = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, images: Tensor) -> Tensor:
            return self.last(self.second(self.shared(self.first(self.shared(images)))))

    torch.manual_seed(0)
    given = Observation(received(images, Shared()), NOISE)
    whole, streamed = (calibrate(given, one) for one in (Evidence(images), in_batches(images)))
    assert streamed.details["report"].shared == ("shared",)
    assert_alike(whole.model, streamed.model)
    assert torch.equal(streamed.model.shared.running_var, given.model.shared.running_var)
    assert not torch.equal(streamed.model.last.running_var, given.model.last.running_var)


@pytest.mark.parametrize("failing", ["rule", "network", "loader", "sizes"])
def test_a_failure_leaves_the_model_as_it_was(images: Tensor, failing: str) -> None:
    torch.manual_seed(0)
    network = received(images, convolutional())
    if failing == "network":
        with torch.no_grad():
            network[8].weight[0, 0] = torch.inf
    before, modes = copy.deepcopy(network.state_dict()), [layer.training for layer in network.modules()]
    num_reads = 0

    class Loader:
        def __iter__(self) -> Iterator[Tensor]:
            nonlocal num_reads
            num_reads += 1
            if failing == "loader" and num_reads == 5:
                yield torch.full((16, 3, 8, 8), torch.nan)
            yield from images.split(16)
            if failing == "sizes":
                yield torch.rand(4, 3, 9, 8)

    met: list[str] = []

    def rule(visit: Visit) -> tuple[Tensor, Tensor]:
        met.append(visit.name)
        if failing == "rule" and len(met) == 3:
            raise RuntimeError("no")
        if not visit.channels.is_finite:
            raise InvalidWeights("not finite")
        return visit.channels.mean, visit.channels.variance

    with pytest.raises((RuntimeError, QuietnnError)):
        visit_batch_norms(network, Evidence(Loader(), batch_size=16), rule)
    for name, value in network.state_dict().items():
        assert torch.equal(before[name], value), name
    assert [layer.training for layer in network.modules()] == modes
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in network.modules())


def test_images_of_several_sizes_are_refused(observation: Observation, images: Tensor) -> None:
    network = nn.Sequential(*list(observation.model)[:2])
    batches = [images[:40], images[40:80], torch.rand(10, 3, 9, 9)]
    with pytest.raises(InvalidConfig, match="one size"):
        calibrate(Observation(network, NOISE), Evidence(batches, batch_size=40))


def test_a_network_without_batch_norm_is_refused(images: Tensor) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    with pytest.raises(InvalidConfig, match="no BatchNorm"):
        calibrate(Observation(network, NOISE), in_batches(images))


def test_only_one_batch_is_alive_at_a_time(observation: Observation, images: Tensor) -> None:
    """What a loader has yielded is let go before it is asked for more, but for the first images."""
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    class Loader:
        def __iter__(self) -> Iterator[Tensor]:
            nonlocal most
            for start in range(0, NUM_IMAGES, 10):
                batch = images[start : start + 10].clone()
                alive.append(weakref.ref(batch))
                yield batch
                del batch
                most = max(most, sum(one() is not None for one in alive))

    calibrate(observation, Evidence(Loader(), batch_size=10), balanced_classes=True)
    assert most <= 6  # four that the first 32 images were taken from while those are read, and the one at hand
