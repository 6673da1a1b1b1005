"""Small networks of every kind, trained on the digits or on SST-2 in seconds to a few minutes, and kept on disk."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from quietnn.batches import Inputs, call, logits_of, take
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.digits import digits_task, examples

WIDTH, NUM_HEADS, NUM_CLASSES, NUM_WORDS, LENGTH = 48, 4, 10, 4000, 32
IS_UNKNOWN, IS_FIRST, NUM_SPECIAL = 0, 1, 2


@dataclass(frozen=True)
class Part:
    """Inputs with their labels."""

    inputs: Inputs
    labels: Tensor


@dataclass(frozen=True)
class Kind:
    """A kind of network: how it is made, what it is for, and how long it is trained."""

    make: Callable[[], nn.Module]
    data: str = "digits"
    num_epochs: int = 60
    peak_lr: float = 2e-3


class Attention(nn.Module):
    """Self-attention out of four linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = (
            layer(tokens).unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        made = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(made.transpose(1, 2).flatten(2))


class PreNormBlock(nn.Module):
    """`x + f(norm(x))`, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class ViT(nn.Module):
    """Patches of 2x2, a class token, blocks of any kind, and a LayerNorm before the head."""

    def __init__(self, blocks: list[nn.Module], *, has_class_token: bool = True) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, 2, stride=2)
        self.positions = nn.Parameter(0.02 * torch.randn(17, WIDTH))
        self.first = nn.Parameter(0.02 * torch.randn(WIDTH))
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, NUM_CLASSES)
        self.has_class_token = has_class_token

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(images), 1, -1), patches], dim=1) + self.positions
        tokens = self.norm(self.blocks(tokens))
        return self.head(tokens[:, 0] if self.has_class_token else tokens.mean(1))


class ConvBlock(nn.Module):
    """`relu(x + norm(conv(relu(norm(conv(x))))))`."""

    def __init__(self, norm: Callable[[int], nn.Module], width: int = 32) -> None:
        super().__init__()
        layers = [nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width)]
        self.branch = nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width))

    def forward(self, maps: Tensor) -> Tensor:
        return (maps + self.branch(maps)).relu()


class Recurrent(nn.Module):
    """An LSTM over the rows of an image, its last state into the head, through a LayerNorm or not."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.lstm, self.norm, self.head = nn.LSTM(8, 64, batch_first=True), norm, nn.Linear(64, NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.lstm(images[:, 0])[0][:, -1]))


def plain_cnn(norm: Callable[[int], nn.Module]) -> nn.Module:
    """Three convolutions, each with its normalisation."""
    layers: list[nn.Module] = []
    for num_in, num_out, stride in ((1, 16, 1), (16, 32, 2), (32, 64, 2)):
        layers += [nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1), norm(num_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, NUM_CLASSES))


def residual_cnn(norm: Callable[[int], nn.Module]) -> nn.Module:
    """A stem and three residual blocks."""
    stem = [nn.Conv2d(1, 32, 3, padding=1, bias=False), norm(32), nn.ReLU()]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, NUM_CLASSES)]
    return nn.Sequential(*stem, *(ConvBlock(norm) for _ in range(3)), *ends)


def mlp(norm: Callable[[int], nn.Module]) -> nn.Module:
    """Two hidden layers."""
    hidden = [nn.Linear(64, 96), norm(96), nn.ReLU(), nn.Linear(96, 96), norm(96), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(96, NUM_CLASSES))


def torch_block(*, norm_first: bool) -> nn.Module:
    """The block that torch ships."""
    return nn.TransformerEncoderLayer(
        WIDTH, NUM_HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    )


def bert() -> nn.Module:
    """A BERT of three layers for two classes."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=NUM_WORDS, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=LENGTH, hidden_dropout_prob=0.2,
        )
    )  # fmt: skip


def gpt2() -> nn.Module:
    """A GPT-2 (pre-norm) of three layers for two classes."""
    from transformers import GPT2Config, GPT2ForSequenceClassification

    return GPT2ForSequenceClassification(
        GPT2Config(
            vocab_size=NUM_WORDS, n_embd=64, n_layer=3, n_head=4, n_positions=LENGTH, pad_token_id=IS_UNKNOWN,
            embd_pdrop=0.2, resid_pdrop=0.2,
        )
    )  # fmt: skip


_groups = partial(nn.GroupNorm, 4)

KINDS: dict[str, Kind] = {
    "vit-pre-norm": Kind(lambda: ViT([PreNormBlock() for _ in range(6)])),
    "vit-pre-norm-mean": Kind(lambda: ViT([torch_block(norm_first=True) for _ in range(4)], has_class_token=False)),
    "vit-post-norm": Kind(lambda: ViT([torch_block(norm_first=False) for _ in range(4)])),
    "cnn-group-norm": Kind(lambda: plain_cnn(_groups)),
    "resnet-group-norm": Kind(lambda: residual_cnn(_groups)),
    "lstm": Kind(lambda: Recurrent(nn.Identity())),
    "lstm-layer-norm": Kind(lambda: Recurrent(nn.LayerNorm(64))),
    "mlp": Kind(lambda: mlp(lambda _: nn.Identity())),
    "mlp-layer-norm": Kind(lambda: mlp(nn.LayerNorm)),
    "bert": Kind(bert, "sst2", num_epochs=6, peak_lr=1e-3),
    "gpt2": Kind(gpt2, "sst2", num_epochs=6, peak_lr=1e-3),
    "digits-batch-norm": Kind(lambda: digits_task().load_model(), num_epochs=0),
    "mlp-batch-norm": Kind(lambda: mlp(nn.BatchNorm1d)),
    "cnn-batch-norm": Kind(lambda: plain_cnn(nn.BatchNorm2d)),
}


def trained(name: str, *, folder: Path, seed: int = 0) -> nn.Module:
    """A network in evaluation mode: from disk, or trained now and stored."""
    kind, path = KINDS[name], folder / f"{name}-{seed}.pt"
    torch.manual_seed(seed)
    model = kind.make()
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    if kind.num_epochs:
        _train(model, kind, seed)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), path)
    return model.eval()


def data(kind: str, part: str) -> Part:
    """The examples to train on, to tune on (100 of these are the receiver's inputs), or to test on."""
    if kind == "digits":
        found = examples(part)
        return Part(found.inputs.reshape(-1, 1, 8, 8), found.labels)
    return _sentences({"train": "train", "tuning": "dev", "test": "test"}[part])


def outputs(model: nn.Module, inputs: Inputs) -> Tensor:
    """What a network makes of inputs, without gradients."""
    with torch.no_grad():
        return logits_of(call(model, inputs))


def _train(model: nn.Module, kind: Kind, seed: int) -> None:
    part = data(kind.data, "train")
    num_examples, batch = len(part.labels), 50
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    num_steps = kind.num_epochs * (num_examples // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, kind.peak_lr, total_steps=num_steps, pct_start=0.2)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(kind.num_epochs):
        order = torch.randperm(num_examples, generator=generator)
        for start in range(0, num_examples - batch + 1, batch):
            chosen = order[start : start + batch]
            inputs = take(part.inputs, chosen)
            if isinstance(inputs, Tensor):
                inputs = _shifted(inputs, generator)
            loss = cross_entropy(logits_of(call(model, inputs)), part.labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """All images of a batch moved by up to one pixel."""
    down, right = (int(torch.randint(3, (), generator=generator)) for _ in range(2))
    return pad(images, (1, 1, 1, 1), value=float(images.min()))[..., down : down + 8, right : right + 8]


@cache
def _sentences(part: str) -> Part:
    """SST-2 with every word hashed to a number; sentences are cut to 32 words, the first of which stands for all."""
    lines = (resolve_data_dir() / "sst2" / f"{part}.tsv").read_text(encoding="utf-8").splitlines()
    ids = torch.full((len(lines), LENGTH), IS_UNKNOWN)
    for row, line in enumerate(lines):
        words = line.split("\t")[1].split()[: LENGTH - 1]
        numbers = [NUM_SPECIAL + zlib.crc32(word.encode()) % (NUM_WORDS - NUM_SPECIAL) for word in words]
        ids[row, : len(words) + 1] = torch.tensor([IS_FIRST, *numbers])
    labels = torch.tensor([int(line.split("\t")[0]) for line in lines])
    return Part({"input_ids": ids, "attention_mask": (ids != IS_UNKNOWN).long()}, labels)
