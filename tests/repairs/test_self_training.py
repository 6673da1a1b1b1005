"""Training without labels: what it gains, what it leaves alone, and what it refuses."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.repairs.fitting.whitened import PosteriorSettings
from quietnn.repairs.self_training import confidence_loss, self_train

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]


def blobs(num_examples: int, shares: tuple[float, ...] = (1 / 3, 1 / 3, 1 / 3), seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes of points that overlap a little."""
    generator = torch.Generator().manual_seed(3)
    centres = 1.2 * torch.randn(3, 8, generator=generator)
    generator.manual_seed(seed)
    labels = torch.multinomial(torch.tensor(shares), num_examples, replacement=True, generator=generator)
    return centres[labels] + 0.6 * torch.randn(num_examples, 8, generator=generator), labels


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """One that knows the blobs."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
    inputs, labels = blobs(400)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(80):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimiser.step()
    return network.eval()


def accuracy(network: nn.Module) -> float:
    inputs, labels = blobs(2000, seed=9)
    with torch.no_grad():
        return float((network(inputs).argmax(1) == labels).float().mean())


def test_a_network_that_is_sure_again_is_right_more_often(network: nn.Module) -> None:
    gained = []
    for seed in range(5):
        observation = transmit(network, wnr_db=-6.0, seed=seed)
        inputs, _ = blobs(100, seed=seed + 20)
        result = self_train(observation, inputs, seed=seed)
        assert result.details["start"] == "calibrated"
        assert result.details["fit_loss"][-1] < result.details["fit_loss"][0]
        assert 90 <= result.passes <= 100
        gained.append(accuracy(result.model) - accuracy(observation.received))
    assert accuracy(network) > 0.95
    assert sum(gained) / len(gained) > 0.1, gained


@pytest.mark.parametrize("trainable", ["weights", "adapter"])
def test_it_stands_halfway_to_the_minimum(network: nn.Module, trainable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    observation, (inputs, _) = transmit(network, wnr_db=-6.0, seed=0), blobs(100, seed=20)
    half = self_train(observation, inputs, trainable=trainable)
    monkeypatch.setattr("quietnn.repairs.self_training._KEPT", 1.0)
    whole = self_train(observation, inputs, trainable=trainable)
    assert half.details["move"] == pytest.approx(whole.details["move"] / 2)
    assert half.details["fit_loss"] == whole.details["fit_loss"]
    start = observation.received.state_dict()
    for name in observation.weights:
        ways = [one.model.state_dict()[name] - start[name] for one in (half, whole)]
        torch.testing.assert_close(ways[0], ways[1] / 2, rtol=1e-4, atol=1e-6)


def test_more_inputs_gain_more_for_fewer_passes(network: nn.Module) -> None:
    right: dict[int, float] = {}
    passes: dict[int, float] = {}
    for num_inputs in (100, 1000):
        results = [
            self_train(transmit(network, wnr_db=-6.0, seed=seed), blobs(num_inputs, seed=seed + 20)[0], seed=seed)
            for seed in range(5)
        ]
        right[num_inputs] = sum(accuracy(one.model) for one in results) / len(results)
        passes[num_inputs] = results[0].passes
    assert right[1000] > right[100] + 0.01, right
    # A hundred inputs a step, so sqrt(10) times as many steps, each as much shorter; 256 inputs tell the statistics.
    assert passes[1000] == pytest.approx(0.256 + 1 + 3 * round(32 * 10**0.5) / 10 + 1)
    assert passes[100] == pytest.approx(1 + 1 + 3 * 32 + 1)


def test_without_noise_everything_comes_back_bit_for_bit(network: nn.Module, snapshot: Snapshot) -> None:
    result = self_train(network, blobs(20)[0], noise_variance=0.0)
    assert snapshot(result.model.state_dict()) == snapshot(network.state_dict())
    assert (result.details["fit_loss"], result.passes) == ((), 0.0)


def test_the_callers_network_is_left_alone(network: nn.Module, snapshot: Snapshot) -> None:
    model = transmit(network, wnr_db=0.0, seed=0).received.train()
    before = snapshot(model.state_dict())
    with torch.inference_mode():
        result = self_train(model, blobs(30)[0], noise_variance=0.1, settings=PosteriorSettings(num_steps=2))
    assert snapshot(model.state_dict()) == before
    assert all(layer.training for layer in [*model.modules(), *result.model.modules()])
    assert not torch.equal(result.model[0].weight, model[0].weight)
    assert torch.equal(result.model[1].weight, model[1].weight), "normalisation carries no noise"


def test_shares_of_the_classes_are_followed(network: nn.Module) -> None:
    observation = transmit(network, wnr_db=-6.0, seed=1)
    shares = torch.tensor([0.7, 0.2, 0.1])
    inputs, _ = blobs(100, (0.7, 0.2, 0.1), seed=5)

    def mean_output(given: Tensor | None) -> Tensor:
        trained = self_train(observation, inputs, class_shares=given).model
        with torch.no_grad():
            return trained(inputs).softmax(1).mean(0)

    assert (mean_output(shares) - shares).abs().max() < 0.1
    assert (mean_output(None) - 1 / 3).abs().max() < 0.2


def test_shares_that_nobody_knows_are_told_from_the_start(network: nn.Module) -> None:
    """Right shares are best, estimated ones are better than equal ones, which are wrong here."""
    shares, inputs = (0.75, 0.2, 0.05), blobs(400, (0.75, 0.2, 0.05), seed=5)[0]
    tests, labels = blobs(2000, shares, seed=9)
    right: dict[str, float] = {}
    for name, given in {"right": torch.tensor(shares), "estimated": "estimated", "equal": None}.items():
        found = []
        for seed in range(5):
            trained = self_train(transmit(network, wnr_db=-4.0, seed=seed), inputs, class_shares=given, seed=seed)
            with torch.no_grad():
                found.append(float((trained.model(tests).argmax(1) == labels).float().mean()))
        right[name] = sum(found) / len(found)
    assert right["right"] > right["estimated"] > right["equal"] + 0.02, right


def test_shares_by_another_word_are_refused(network: nn.Module) -> None:
    with pytest.raises(InvalidConfig, match="class_shares='estimated'"):
        self_train(network, blobs(20)[0], noise_variance=0.1, class_shares="equal")


def test_the_loss_is_entropy_and_divergence() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    probabilities = logits.softmax(1)
    mean = probabilities.mean(0)
    entropy = -(probabilities * probabilities.log()).sum(1).mean()
    found = confidence_loss(logits, class_shares=shares)(nn.Identity(), torch.arange(2), None)
    expected = entropy + torch.nn.functional.kl_div(shares.log(), mean, reduction="sum") - 2 / (2 * 2)
    assert float(found) == pytest.approx(max(float(expected), float(entropy)), abs=1e-9)


def test_a_network_that_normalises_each_input_starts_from_its_branches() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3)).eval()
    result = self_train(model, blobs(30)[0], noise_variance=0.01, settings=PosteriorSettings(num_steps=2))
    assert result.details["start"] == "branches"
    model[3] = nn.Linear(16, 3, bias=False)
    result = self_train(model, blobs(30)[0], noise_variance=0.01, settings=PosteriorSettings(num_steps=2))
    assert result.details["start"] == "branches", "a head without a bias cannot be centred, and is trained all the same"


@pytest.mark.parametrize("seed", range(3))
def test_shared_batch_norms_start_from_the_weights_as_they_came(seed: int) -> None:
    """MMSE would shrink what stored statistics expect at full size."""
    norm = nn.BatchNorm1d(8)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), norm, nn.ReLU(), nn.Linear(8, 8), norm, nn.ReLU(), nn.Linear(8, 3)).eval()
    received = transmit(model, wnr_db=0.0, seed=seed)
    result = self_train(received, blobs(60)[0])
    assert result.details["start"] == "received"
    assert result.passes < 98, "nothing was calibrated"


def test_a_network_without_normalisation_starts_as_it_came() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    assert self_train(model, blobs(20)[0], noise_variance=0.01).details["start"] == "received"


def test_outputs_of_infinite_certainty_have_no_entropy() -> None:
    logits = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]], requires_grad=True)
    loss = confidence_loss(torch.eye(2))(lambda inputs: logits, torch.arange(2), None)
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)


def test_inputs_by_keyword_and_variants_of_them() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, points: Tensor) -> dict[str, Tensor]:
            return {"logits": self.layers(points)}

    torch.manual_seed(0)
    settings = PosteriorSettings(num_steps=2)
    result = self_train(Named().eval(), {"points": blobs(20)[0]}, noise_variance=0.01, settings=settings)
    assert result.details["move"] > 0
    seen = []

    def augment(inputs: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(len(inputs))
        return inputs

    self_train(nn.Linear(8, 3), blobs(20)[0], noise_variance=0.01, augment=augment, settings=settings)
    assert seen == [20, 20]


def test_what_cannot_be_trained_is_refused(network: nn.Module) -> None:
    inputs, _ = blobs(20)
    with pytest.raises(InvalidConfig, match="classes of class_shares"):
        self_train(network, inputs, noise_variance=0.1, class_shares=torch.full((4,), 0.25))
    with pytest.raises(InvalidConfig, match="add up to 3"):
        self_train(network, inputs, noise_variance=0.1, class_shares=torch.ones(3))
    with pytest.raises(InvalidConfig, match="positive share"):
        self_train(network, inputs, noise_variance=0.1, class_shares=torch.tensor([1.0, 0.0, 0.0]))
    with pytest.raises(QuietnnError, match="not finite"):
        self_train(network, inputs * torch.nan, noise_variance=0.1)
    regression = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    with pytest.raises(InvalidConfig, match="two classes or more"):
        self_train(regression, inputs, noise_variance=0.1)
