"""Passes that go block by block."""

from collections import Counter

import pytest
import torch
from tests.small_language_models import FAMILIES
from torch import Tensor, nn

from quietnn.batches import outputs_of
from quietnn.evidence import Evidence
from quietnn.watching.blocks import BlockByBlock

_MUCH = 10**9


class _Chain(nn.Module):
    """An input layer, residual blocks, and a head; `kind` says what the blocks have beside the chain."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.enter = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))
        self.head = nn.Linear(8, 3)
        if kind == "shared inside":
            for block in self.blocks[1:]:
                block[0] = self.blocks[0][0]  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        made = [x]
        for block in self.blocks:
            given = made[0] if self.kind == "parallel" else made[-1]
            made.append(given + block(given) if self.kind == "residual outside" else block(given))
        if self.kind == "skipping":
            made[-1] = made[-1] + made[1]
        if self.kind == "parallel":
            made[-1] = torch.stack(made).sum(0)
        if self.kind == "again":
            made[-1] = self.blocks[0](made[-1])
        return self.head(made[-1])  # type: ignore[no-any-return]


def _seen(model: nn.Module, run: BlockByBlock) -> tuple[list[Counter[str]], dict[str, Tensor]]:
    """How often each layer is called in each part, and what enters it in all."""
    parts: list[Counter[str]] = []
    calls: Counter[str] = Counter()
    entered: dict[str, list[Tensor]] = {}

    def hook(name: str):  # type: ignore[no-untyped-def]
        def before(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            calls[name] += 1
            entered.setdefault(name, []).append(args[0].clone())

        return before

    handles = [
        layer.register_forward_pre_hook(hook(name)) for name, layer in model.named_modules() if type(layer) is nn.Linear
    ]
    for _ in run.parts():
        parts.append(calls.copy())
        calls.clear()
    for handle in handles:
        handle.remove()
    return parts, {name: torch.cat(tensors) for name, tensors in entered.items()}


def _inputs() -> Tensor:
    return torch.randn(10, 4, generator=torch.Generator().manual_seed(1))


def test_each_part_runs_one_block_on_all_inputs() -> None:
    model = _Chain()
    run = BlockByBlock(model, Evidence(_inputs(), batch_size=4), most=_MUCH)
    parts, entered = _seen(model, run)
    assert [{*part} - {"enter"} for part in parts] == [{f"blocks.{n}.0"} for n in range(4)] + [{"head"}]
    assert {part["enter"] for part in parts} == {3}
    whole = _seen(model, BlockByBlock(model, Evidence(_inputs(), batch_size=4), most=0))[1]
    for name in ("blocks.0.0", "blocks.3.0", "head"):
        assert torch.equal(entered[name], whole[name])
    assert run.num_passes == pytest.approx((6 + 4) / 6)  # the layer in front of the blocks runs five times


def test_a_run_ends_at_a_layer_which_is_still_seen() -> None:
    model = _Chain()
    for most in (0, _MUCH):
        called: list[int] = []
        handle = model.head.register_forward_hook(lambda *_: called.append(1))  # noqa: B023
        parts, entered = _seen(model, BlockByBlock(model, Evidence(_inputs()), most=most, until=model.head))
        handle.remove()
        assert not called
        assert parts[-1]["head"] == 1
        assert entered["head"].shape == (10, 8)


@pytest.mark.parametrize("kind", ["residual outside", "skipping", "parallel", "again", "shared inside"])
def test_blocks_that_do_not_hand_on_all_there_is_run_in_one_part(kind: str) -> None:
    model = _Chain(kind)
    run = BlockByBlock(model, Evidence(_inputs()), most=_MUCH)
    parts, _ = _seen(model, run)
    assert len(parts) == 1
    assert run.num_passes == 1.0


def test_loaders_and_too_many_inputs_run_in_one_part() -> None:
    model = _Chain()
    loaded = BlockByBlock(model, Evidence(list(_inputs().split(5))), most=_MUCH)
    too_many = BlockByBlock(model, Evidence(_inputs()), most=10 * 8 * 4 - 1)  # ten rows of eight numbers
    just = BlockByBlock(model, Evidence(_inputs()), most=10 * 8 * 4)
    assert [len(list(run.parts())) for run in (loaded, too_many, just)] == [1, 1, 5]


def test_the_network_is_as_it_was() -> None:
    model = _Chain().train()
    before = [dict(layer.__dict__) for layer in model.modules()]
    for _ in BlockByBlock(model, Evidence(_inputs()), most=_MUCH).parts():
        assert not model.training
    assert model.training
    for layer, own in zip(model.modules(), before, strict=True):
        assert layer.__dict__.keys() == own.keys()
        assert not layer._forward_hooks
        assert not layer._forward_pre_hooks


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_networks_of_transformers_go_block_by_block(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    config_name, model_name, settings = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(vocab_size=90, decoder_start_token_id=0, pad_token_id=0, **settings)
    model = getattr(transformers, model_name)(config).eval()
    tokens = torch.randint(1, 90, (4, 12))
    inputs = {"input_ids": tokens, **({"decoder_input_ids": tokens} if family == "t5" else {})}
    expected = outputs_of(model, inputs)
    made: list[Tensor] = []
    run = BlockByBlock(model, Evidence(inputs), most=_MUCH)
    handle = model.lm_head.register_forward_hook(lambda _, __, output: made.append(output))
    assert len(list(run.parts())) == (5 if family == "t5" else 3)
    handle.remove()
    torch.testing.assert_close(made[-1], expected)
