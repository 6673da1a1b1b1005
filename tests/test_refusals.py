"""Every verb refuses what it cannot repair by name, before it has changed anything."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.errors import QuietnnError

INPUTS = torch.rand(16, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(16) % 3
NOISE: dict[str, Any] = {"noise_variance": 0.01}

VERBS: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "auto": lambda model, inputs: quietnn.auto(model, inputs, LABELS, **NOISE),
    "auto without labels": lambda model, inputs: quietnn.auto(model, inputs, **NOISE),
    "auto, noise unknown": lambda model, inputs: quietnn.auto(model, inputs),
    "calibrate": lambda model, inputs: quietnn.calibrate(model, inputs, **NOISE),
    "calibrate_structured": lambda model, inputs: quietnn.calibrate_structured(model, inputs, **NOISE),
    "finetune": lambda model, inputs: quietnn.finetune(model, inputs, LABELS),
    "posterior": lambda model, inputs: quietnn.posterior(model, inputs, LABELS, **NOISE),
    "self_train": lambda model, inputs: quietnn.self_train(model, inputs, **NOISE),
    "gradient": lambda model, inputs: quietnn.repair(model, inputs, LABELS, method="mmse_pb_gradient", **NOISE),
    "noise power": lambda model, inputs: quietnn.noise_power_from_batch_norm(model, inputs),
}
WITHOUT_INPUTS: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "auto without inputs": lambda model, inputs: quietnn.auto(model, **NOISE),
    "denoise": lambda model, inputs: quietnn.denoise(model, **NOISE),
    "transmit": lambda model, inputs: quietnn.transmit(model, wnr_db=3.0, seed=0),
    "reram": lambda model, inputs: quietnn.transmit(model, channel="reram", seed=0),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()


def with_values(name: str, value: float) -> nn.Module:
    model = network()
    model.state_dict()[name].view(-1)[0] = value
    return model


def with_head(change: Callable[[Tensor], Tensor]) -> nn.Module:
    model = network()
    model[4].weight = nn.Parameter(change(model[4].weight.detach()), requires_grad=False)
    return model


MODULES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "nan": (lambda: with_values("0.weight", torch.nan), "0.weight holds 1 values that are not finite"),
    "inf": (lambda: with_values("4.bias", torch.inf), "4.bias holds 1 values that are not finite"),
    "nan scale": (lambda: with_values("1.weight", torch.nan), "1.weight holds 1 values that are not finite"),
    "nan variance": (lambda: with_values("1.running_var", torch.nan), "1.running_var holds 1 values"),
    "negative variance": (lambda: with_values("1.running_var", -1.0), "a variance is never negative"),
    "meta": (lambda: network().to("meta"), "is on the meta device and has no values"),
    "lazy": (
        lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.BatchNorm2d(4), nn.LazyLinear(3)),
        "is lazy and has no values",
    ),
    "sparse": (lambda: with_head(lambda weight: weight.to_sparse()), "4.weight is torch.sparse_coo"),
    "float8": (lambda: with_head(lambda weight: weight.to(torch.float8_e4m3fn)), "4.weight is torch.float8_e4m3fn"),
    "huge": (lambda: with_head(lambda weight: weight.double() * 1e200), "no weight may pass 1e\\+150"),
    "scripted": (lambda: torch.jit.script(network()), "is a scripted module"),
    "traced": (lambda: torch.jit.trace(network(), INPUTS), "is a scripted module"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:Lazy modules", "ignore:Sparse")
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("verb", {**VERBS, **WITHOUT_INPUTS})
def test_a_module_that_cannot_be_repaired_is_refused_by_name(verb: str, kind: str) -> None:
    make, message = MODULES[kind]
    with pytest.raises(QuietnnError, match=message):
        {**VERBS, **WITHOUT_INPUTS}[verb](make(), INPUTS)


OTHER_INPUTS: dict[str, Tensor] = {
    "double": INPUTS.double(),
    "bytes": (255 * INPUTS).to(torch.uint8),
    "narrow": INPUTS[:, :, :5, :5],
    "channels": INPUTS.expand(-1, 3, -1, -1),
    "flat": INPUTS.flatten(1),
    "complex": INPUTS.to(torch.complex64),
    "meta": INPUTS.to("meta"),
    "sparse": INPUTS.to_sparse(),
}


@pytest.mark.parametrize("kind", OTHER_INPUTS)
@pytest.mark.parametrize("verb", VERBS)
def test_inputs_that_do_not_fit_are_refused_with_their_shape_and_kind(verb: str, kind: str) -> None:
    message = "meta device|not dense" if kind in ("meta", "sparse") else "the network cannot be run on inputs of shape"
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(QuietnnError, match=message):
        VERBS[verb](model, OTHER_INPUTS[kind])
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())


def test_a_mask_of_infinities_is_no_weight() -> None:
    model = network()
    model.register_buffer("mask", torch.full((2, 2), -torch.inf))
    assert quietnn.denoise(model, **NOISE).model.mask.isinf().all()


@pytest.mark.parametrize("told", [None, 0.01])
@pytest.mark.parametrize("labels", [None, LABELS])
def test_auto_where_all_variances_are_zero(told: float | None, labels: Tensor | None) -> None:
    model = network()
    model[1].running_var.zero_()
    if told is None:
        with pytest.raises(QuietnnError, match="no BatchNorm with variances above zero"):
            quietnn.auto(model, INPUTS, labels)
        return
    result = quietnn.auto(model, INPUTS, labels, noise_variance=told, max_passes=20)
    assert all(tensor.isfinite().all() for tensor in result.model.state_dict().values())


@pytest.mark.parametrize("channel", ["awgn:wnr_db=-3", "reram", "pcm:seconds=60", "fading:wnr_db=0"])
def test_half_precision_that_would_overflow_is_refused(channel: str) -> None:
    weights = torch.full((1000,), 6.5e4, dtype=torch.float16)
    weights[::2] *= -1
    with pytest.raises(QuietnnError, match=r"largest number is 6.55e\+04, and what arrives passes that"):
        quietnn.transmit(weights, channel=channel, seed=0)


@pytest.mark.parametrize("value", [1e-320, 1e-300, 1e100, 1e160, 1.7e308])
@pytest.mark.parametrize("channel", ["reram", "reram:compensate=true", "pcm:seconds=60", "quantise:num_bits=4"])
def test_extreme_weights_arrive_finite_or_are_refused(channel: str, value: float) -> None:
    weights = torch.tensor([value, -value, value / 3, 0.0], dtype=torch.float64)
    if value > 1e150:
        with pytest.raises(QuietnnError, match="no weight may pass"):
            quietnn.transmit(weights, channel=channel, seed=0)
    else:
        assert quietnn.transmit(weights, channel=channel, seed=0).received.isfinite().all()
