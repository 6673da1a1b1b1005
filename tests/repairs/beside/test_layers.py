"""Layers beside which something is computed: of every kind they do what merged weights do, and no weight changes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from quietnn.repairs.beside.beside import Beside
from quietnn.repairs.beside.layers import BesideLayer
from quietnn.repairs.beside.part import ones, output_axes
from quietnn.weights import is_normalisation


class Attending(nn.Module):
    """Reads weights and calls no layer for them."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs + self.token
        return self.norm(self.attention(inputs, inputs, inputs)[0])  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 5, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.lstm(inputs)[0]  # type: ignore[no-any-return]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8, padding_idx=0)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight
        self.again = self.twice = nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.twice(self.again(self.words(tokens))))  # type: ignore[no-any-return]


TOKENS, PLAIN = torch.randint(0, 11, (3, 5)), torch.randn(3, 5, 8)
IMAGES = torch.randn(2, 4, 6, 6)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3, bias=False)), PLAIN),
    "one layer": (lambda: nn.Linear(8, 6), PLAIN),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(5, 6, 3, stride=2, padding=1)), PLAIN),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3, padding="same", dilation=2)), IMAGES),
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2, padding=1, padding_mode="reflect")), IMAGES),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=4, bias=False), nn.BatchNorm2d(8)), IMAGES),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2)), torch.randn(2, 2, 4, 4, 4)),
    "one image": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3)), IMAGES[0]),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3)), IMAGES),
    "attention": (Attending, PLAIN),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), PLAIN),
    "recurrent": (Recurrent, PLAIN),
    "tied and called twice": (Tied, TOKENS),
    "prelu": (lambda: nn.Sequential(nn.Linear(8, 6), nn.PReLU(6 - 1)), PLAIN),
}


def something_beside(network: nn.Module) -> Beside:
    """Scales, two ranks and new vectors beside everything that there is."""
    scales, pairs, replaced, axes = {}, {}, {}, output_axes(network)
    for name, one in network.named_parameters():
        if one.dim() > 1:
            scales[name] = ones(one, axes[name]).uniform_(0.5, 1.5)
            rows = one.flatten(1)
            pairs[name] = torch.randn(len(rows), 2) / 3, torch.randn(2, rows.shape[1]) / 3
        else:
            replaced[name] = one.detach() + torch.randn_like(one)
    statistics = {name: one + 0.5 for name, one in network.named_buffers() if one.is_floating_point()}
    return Beside(scales, pairs, replaced, statistics)


def held(network: nn.Module) -> list[Tensor]:
    """All parameters but those of normalisation layers, whatever they are called now."""
    clean = {id(one) for layer in network.modules() if is_normalisation(layer) for one in layer.parameters()}
    return [one for one in network.parameters() if id(one) not in clean]


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_wrapped_network_does_what_merged_weights_do_and_keeps_every_bit(kind: str) -> None:
    torch.manual_seed(0)
    make, inputs = NETWORKS[kind]
    network = make().eval()
    beside = something_beside(network)
    wrapped, merged = beside.wrap(network), beside.merge(network)
    with torch.no_grad():
        expected = merged(inputs)
        assert float((expected - network(inputs)).abs().max()) > 1e-3
        torch.testing.assert_close(wrapped(inputs), expected, atol=1e-5, rtol=1e-5)
    before, after = held(network), held(wrapped)
    assert {one.numpy(force=True).tobytes() for one in before} == {one.numpy(force=True).tobytes() for one in after}
    assert len(before) == len(after)


def test_what_reads_a_wrapped_layer_finds_what_it_amounts_to() -> None:
    layer = nn.Linear(4, 3)
    network = nn.Sequential(layer)
    beside = something_beside(network)
    wrapped, merged = beside.wrap(network), beside.merge(network)
    assert isinstance(wrapped[0], BesideLayer)  # type: ignore[index]
    found: BesideLayer = wrapped[0]  # type: ignore[index]
    torch.testing.assert_close(found.weight, merged[0].weight)  # type: ignore[index]
    torch.testing.assert_close(found.bias, merged[0].bias)  # type: ignore[index]
    assert (found.in_features, found.out_features) == (4, 3)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = found.nonsense


def test_a_layer_is_called_as_a_black_box() -> None:
    """What the layer does of itself, here noise of a read, is scaled like all else."""

    class Crossbar(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + 100.0

    network = nn.Sequential(Crossbar(4, 3, bias=False))
    beside = Beside(scales={"0.weight": torch.full((3, 1), 2.0)})
    expected = 2.0 * network(torch.zeros(1, 4))
    assert torch.equal(beside.wrap(network)(torch.zeros(1, 4)), expected)


def test_nothing_beside_a_layer_leaves_it_alone() -> None:
    network = nn.Sequential(nn.Linear(4, 3))
    assert type(Beside().wrap(network)[0]) is nn.Linear  # type: ignore[index]
