"""Small networks of many kinds, each trained for a second or two on the digits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import logits_of, take
from quietnn.tasks.digits import examples

WIDTH = 24


@dataclass(frozen=True)
class Trained:
    """A clean network, its data, and how it is judged.

    Attributes:
        model: in evaluation mode.
        known: what the receiver has, inputs and labels.
        test: what it is judged on, inputs and labels.
        loss: `(outputs, labels)` to one loss for each example; None for a classifier, which is judged by accuracy.
        wnr_db: noise that clearly hurts the network.
        floor: the score of a network that knows nothing.
    """

    model: nn.Module
    known: tuple[Any, Tensor]
    test: tuple[Any, Tensor]
    loss: Callable[[Tensor, Tensor], Tensor] | None
    wnr_db: float
    floor: float

    def scores(self, model: nn.Module) -> Tensor:
        """Of each test example: whether it is right, or minus its loss."""
        inputs, labels = self.test
        with torch.no_grad():
            outputs = called(model, inputs)
        if self.loss is None:
            return (outputs.argmax(1) == labels).double()
        return -self.loss(outputs, labels).double()


def called(model: nn.Module, inputs: Any) -> Tensor:
    return logits_of(model(inputs) if isinstance(inputs, Tensor) else model(**inputs))


class Rows(nn.Module):
    """Calls a network on the eight rows of a digit, shape (images, 8, 8)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images.reshape(-1, 8, 8))


class Recurrent(nn.Module):
    """The last state of a GRU or an LSTM, and a head."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells, self.head = kind(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.cells(rows)[0][:, -1])


class Attention(nn.Module):
    """Torch's own attention over the rows, without normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.positions = nn.Linear(8, WIDTH), nn.Parameter(0.3 * torch.randn(8, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.head = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, 10))

    def forward(self, rows: Tensor) -> Tensor:
        tokens = self.rows(rows) + self.positions
        return self.head((tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]).mean(1))


class Block(nn.Module):
    """`x + f(norm(x))`: attention, then two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.mixed(self.norm1(tokens)).chunk(3, dim=-1)
        tokens = tokens + self.out(functional.scaled_dot_product_attention(query, key, value))
        return tokens + self.mlp(self.norm2(tokens))


class ViT(nn.Module):
    """Sixteen patches of 2x2 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = nn.Conv2d(1, WIDTH, 2, 2), nn.Parameter(0.1 * torch.randn(16, WIDTH))
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class UNet(nn.Module):
    """One step down, one up, and the skip between."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.bottom = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        fine = self.down(images)
        coarse = self.bottom(functional.avg_pool2d(fine, 2))
        return self.last(torch.cat([fine, self.up(coarse)], dim=1))


def cnn(norm: Callable[[int], nn.Module]) -> nn.Module:
    first = [nn.Conv2d(1, 8, 3, padding=1), norm(8), nn.ReLU(), nn.AvgPool2d(2)]
    second = [nn.Conv2d(8, 16, 3, padding=1), norm(16), nn.ReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(64, 10))


def mlp() -> nn.Module:
    hidden = [nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(32, 10))


def conv1d() -> nn.Module:
    first = [nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU()]
    second = [nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU()]
    return Rows(nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(128, 10)))


SIZES = {
    "vocab_size": 17,
    "max_position_embeddings": 16,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 2 * WIDTH,
    "initializer_range": 0.1,
}


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=10, **SIZES, **still))


def llama() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(use_cache=False, **SIZES))


def image_data(part: str) -> tuple[Tensor, Tensor]:
    digits = examples(part)
    return digits.inputs, digits.labels


def tokens_of(part: str) -> Tensor:
    """Sixteen grey values of a digit, 0 to 16, row by row."""
    pooled = functional.avg_pool2d(examples(part).inputs, 2)
    return (pooled * 6.0 + 4.9).round().clamp(0, 16).long().flatten(1)


def token_data(part: str) -> tuple[dict[str, Tensor], Tensor]:
    return {"input_ids": tokens_of(part)}, examples(part).labels


def next_token_data(part: str) -> tuple[dict[str, Tensor], Tensor]:
    tokens = tokens_of(part)
    return {"input_ids": tokens}, tokens


def blurred_data(part: str) -> tuple[Tensor, Tensor]:
    """Blurred digits, and what they were."""
    sharp = examples(part).inputs
    return functional.avg_pool2d(sharp, 3, stride=1, padding=1, count_include_pad=False), sharp


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)


def squared_error(outputs: Tensor, sharp: Tensor) -> Tensor:
    return (outputs - sharp).square().flatten(1).mean(1)


@dataclass(frozen=True)
class Kind:
    """How a network is made, trained and hurt."""

    make: Callable[[], nn.Module]
    wnr_db: float
    data: Callable[[str], tuple[Any, Tensor]] = image_data
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    floor: float = 0.1
    num_epochs: int = 8
    learning_rate: float = 5e-3


KINDS = {
    "mlp": Kind(mlp, 0.0),
    "conv1d": Kind(conv1d, 3.0),
    "gru": Kind(lambda: Rows(Recurrent(nn.GRU)), 3.0),
    "lstm": Kind(lambda: Rows(Recurrent(nn.LSTM)), 3.0),
    "vit": Kind(ViT, 6.0, learning_rate=3e-3, num_epochs=12),
    "attention": Kind(lambda: Rows(Attention()), 6.0, num_epochs=12),
    "groupnorm": Kind(lambda: cnn(lambda channels: nn.GroupNorm(4, channels)), 6.0),
    "instancenorm": Kind(lambda: cnn(lambda channels: nn.InstanceNorm2d(channels, affine=True)), 6.0),
    "bert": Kind(bert, 9.0, token_data, num_epochs=8, learning_rate=3e-3),
    "llama": Kind(llama, 3.0, next_token_data, next_token_loss, floor=-2.83),
    "unet": Kind(UNet, 6.0, blurred_data, squared_error, floor=-1.0),
}


def train(kind: Kind) -> nn.Module:
    inputs, labels = kind.data("train")
    loss = kind.loss or functional.cross_entropy
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind.make()
        model.train()
        optimiser = torch.optim.AdamW(model.parameters(), lr=kind.learning_rate)
        for _ in range(kind.num_epochs):
            for chosen in torch.randperm(len(labels)).split(50):
                optimiser.zero_grad()
                loss(called(model, take(inputs, chosen)), labels[chosen]).mean().backward()
                optimiser.step()
    return model.eval()


@pytest.fixture(scope="session")
def trained() -> Callable[[str], Trained]:
    """A network by name, trained once a session."""

    @cache
    def make(name: str) -> Trained:
        kind = KINDS[name]
        inputs, labels = kind.data("tuning")
        known = (take(inputs, slice(80)), labels[:80])
        return Trained(train(kind), known, kind.data("test"), kind.loss, kind.wnr_db, kind.floor)

    return make
