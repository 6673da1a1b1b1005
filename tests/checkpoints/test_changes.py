"""Results that their dtype cannot hold: refused with nothing written, and looked for only where they can occur."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from quietnn.channels.awgn import AWGN
from quietnn.channels.table import channel_named
from quietnn.checkpoints.changes import kept_finite, largest_magnitude
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.transmit import transmit_checkpoint, transmit_checkpoint_through
from quietnn.errors import InvalidWeights
from quietnn.moments import block_moments

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
Run = Callable[[Path, Path], Any]


def sent(**options: float) -> Run:
    return lambda source, out: transmit_checkpoint(source, out, channel=AWGN(**options), seed=1)


def denoised(beta: float, lambda_prime: float = 0.0) -> Run:
    return lambda source, out: denoise_checkpoint(
        source, out, noise_variance=0.01, method="mmse_pb", lambda_prime=lambda_prime, beta=beta
    )


def radioed(source: Path, out: Path) -> float:
    return transmit_checkpoint_through(source, out, channel=channel_named("awgn:wnr_db=-200"), description="", seed=1)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize(
    ("dtype", "run"),
    [
        (torch.float16, sent(noise_variance=1e12)),
        (torch.float32, sent(noise_variance=1e77)),
        (torch.float32, sent(noise_variance=1e300)),
        (torch.bfloat16, sent(wnr_db=-3000.0)),
        (torch.float16, denoised(beta=1e9)),
        (torch.float32, denoised(beta=1e60)),
        (torch.bfloat16, denoised(beta=1e60)),
        (torch.float16, radioed),
    ],
)
def test_results_past_the_dtype_are_refused(tmp_path: Path, suffix: str, dtype: torch.dtype, run: Run) -> None:
    state = {"a.weight": torch.randn(300, 300, generator=torch.Generator().manual_seed(1)).to(dtype)}
    source = tmp_path / f"in{suffix}"
    if suffix == ".pt":
        torch.save(state, source)
    else:
        save_file(state, source)
    with pytest.raises(InvalidWeights, match=r"a.weight"):
        run(source, tmp_path / f"out{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_results_within_it_are_written_however_large(tmp_path: Path) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({"a.weight": torch.full((2, 3), 60000.0, dtype=torch.float16)}, source)
    transmit_checkpoint(source, out, channel=AWGN(noise_variance=1e4), seed=1)  # conceivably past it, but not past it
    assert bool(load_file(out)["a.weight"].isfinite().all())


@given(
    values=st.lists(st.floats(-60000, 60000, width=16), min_size=1, max_size=30),
    repeats=st.sampled_from((1, 7, 500)),
    dtype=st.sampled_from(DTYPES),
)
def test_the_bound_holds(values: list[float], repeats: int, dtype: torch.dtype) -> None:
    tensor = torch.tensor(values, dtype=dtype).repeat(repeats)
    bound = largest_magnitude(block_moments(tensor))
    largest = float(tensor.double().abs().max())
    assert largest <= bound <= 2.1 * tensor.numel() ** 0.5 * largest + 1e-30


def test_a_tensor_that_cannot_overflow_is_not_looked_at() -> None:
    values = torch.tensor([float("inf")])
    kept_finite("w", lambda stretch, start: None, factor=1.0, reach=1.0)(values, 0)
    with pytest.raises(InvalidWeights, match=r"w is torch.float32, whose largest number is 3.403e\+38"):
        kept_finite("w", lambda stretch, start: None, factor=1.0, reach=1e39)(values, 0)
