"""What every test shares: one thread, repeatable examples, a small network with every kind of tensor."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor, nn

torch.set_num_threads(1)

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}
settings.register_profile("repeatable", derandomize=True, max_examples=60, **_SHARED)
settings.register_profile("explore", max_examples=1000, **_SHARED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


class TinyNet(nn.Module):
    """A convolution, a BatchNorm, a tied pair of matrices, a LayerNorm and a parameter of the model's own."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 3))
        self.conv = nn.Conv2d(2, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.embed = nn.Embedding(6, 5)
        self.ln = nn.LayerNorm(5)
        self.head = nn.Linear(5, 6)
        self.head.weight = self.embed.weight


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright, which runs once only in a process."""
    reason = "the browser tests need the [browser] extra: pip install quietnn[browser]"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no Chromium here: looked for {', '.join(BROWSERS)} on the PATH")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def tiny_net() -> TinyNet:
    torch.manual_seed(0)
    return TinyNet()


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, so that -0.0 differs from 0.0."""
    return tensor.detach().contiguous().flatten().view(torch.uint8)


@pytest.fixture
def same_bits() -> Callable[[Tensor, Tensor], bool]:
    """Whether two tensors are of one shape and kind and equal to the last bit."""

    def same(one: Tensor, other: Tensor) -> bool:
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(bits(one), bits(other))

    return same


@pytest.fixture
def snapshot() -> Callable[[Mapping[str, Tensor]], dict[str, bytes]]:
    """The bytes of every tensor of a state dict."""
    return lambda state: {name: bytes(bits(tensor).tolist()) for name, tensor in state.items()}
