"""Denoising from file to file is what the library does in memory, to the last bit: any dtype, groups, threads."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

import quietnn
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.workers import Streaming
from quietnn.moments import WeightStatistics
from quietnn.observation import observe

NOISY = ("scale", "conv.weight", "conv.bias", "fc.weight")


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


StateOf = Callable[..., dict[str, Tensor]]


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Equal names, dtypes, shapes and bits."""
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype
        assert tensor.shape == second[name].shape
        assert bits(tensor) == bits(second[name]), name


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_denoise_equals_the_library(tmp_path: Path, state_of: StateOf, dtype: torch.dtype, groups: str) -> None:
    state = state_of(dtype, num_values=280_000)
    source, out = tmp_path / "r.safetensors", tmp_path / "w.safetensors"
    save_file(state, source)
    expected = quietnn.denoise(
        observe(state, noise_variance=0.02, noisy=NOISY), method="mmse_pb", lambda_prime=0.4, beta=0.7, groups=groups
    ).model
    for chunk, threads in ((1, 1), (1, 3), (131_072, 2), (10_000_000, 2)):
        denoise_checkpoint(
            source,
            out,
            noise_variance=0.02,
            method="mmse_pb",
            lambda_prime=0.4,
            beta=0.7,
            groups=groups,
            overwrite=True,
            streaming=Streaming(num_threads=threads, chunk=chunk),
        )
        same(load_file(out), expected)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(num_values=st.integers(1, 300_000), chunk=st.integers(1, 400_000), threads=st.integers(1, 4))
def test_any_size_any_chunk_any_thread_count(tmp_path: Path, num_values: int, chunk: int, threads: int) -> None:
    weight = torch.randn(num_values, 1, generator=torch.Generator().manual_seed(num_values))
    source, out = tmp_path / "r.safetensors", tmp_path / "w.safetensors"
    save_file({"a.weight": weight}, source)
    streaming = Streaming(num_threads=threads, chunk=chunk)
    denoise_checkpoint(source, out, noise_variance=0.1, overwrite=True, streaming=streaming)
    assert torch.equal(
        load_file(out)["a.weight"], quietnn.denoise({"a.weight": weight}, noise_variance=0.1).model["a.weight"]
    )


def whole(state: dict[str, Tensor]) -> WeightStatistics:
    return WeightStatistics.from_clean([state[name] for name in NOISY])


def test_equal_runs_give_equal_bytes(tmp_path: Path, file: Path) -> None:
    outs = [tmp_path / f"{number}.safetensors" for number in range(2)]
    for number, out in enumerate(outs):
        streaming = Streaming(num_threads=1 + number)
        denoise_checkpoint(file, out, wnr_db=3.0, groups="layerwise", streaming=streaming)
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_wnr_is_turned_into_noise_with_what_was_received(
    tmp_path: Path, file: Path, state: dict[str, Tensor]
) -> None:
    done = denoise_checkpoint(file, tmp_path / "out.safetensors", wnr_db=0.0)
    assert done.noise_variance == whole(state).variance / 2
    assert done.denoisers["whole"].theta == pytest.approx(0.5)
    noiseless = denoise_checkpoint(file, tmp_path / "same.safetensors", wnr_db=float("inf"))
    assert noiseless.noise_variance == 0
    same(load_file(tmp_path / "same.safetensors"), state)


def test_ml_gives_back_every_bit(tmp_path: Path, file: Path, state: dict[str, Tensor]) -> None:
    denoise_checkpoint(file, tmp_path / "out.safetensors", noise_variance=9.0, method="ml")
    same(load_file(tmp_path / "out.safetensors"), state)
