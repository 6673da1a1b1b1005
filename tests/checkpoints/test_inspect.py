"""Looking into a file: what the library sees, and values that are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.inspect import histogram, inspect_checkpoint
from quietnn.checkpoints.workers import Streaming
from quietnn.moments import WeightStatistics

Run = Callable[..., str]


NOISY = ("scale", "conv.weight", "conv.bias", "fc.weight")


def whole(state: dict[str, Tensor]) -> WeightStatistics:
    return WeightStatistics.from_clean([state[name] for name in NOISY])


def test_inspect_sees_what_the_library_sees(file: Path, state: dict[str, Tensor]) -> None:
    seen = inspect_checkpoint(file, noise_variance=0.02)
    assert seen.whole.statistics == whole(state)
    groups = {group.name: group for group in seen.groups}
    assert groups.keys() == {"", "conv", "fc"}
    conv = WeightStatistics.from_clean([state["conv.weight"], state["conv.bias"]])
    assert groups["conv"].statistics == conv
    assert groups["conv"].wnr_db == pytest.approx(10 * torch.tensor((conv.variance - 0.02) / 0.02).log10().item(), 1e-5)
    assert groups[""].wnr_db == float("-inf")
    assert sorted(seen.selection.untouched) == sorted(name for name in state if name not in NOISY)
    counts, low, high = histogram(seen, num_bins=31, streaming=Streaming(num_threads=2, chunk=1))
    assert low < seen.whole.statistics.mean < high
    assert sum(counts) == seen.whole.statistics.num_weights
    assert max(counts) == max(counts[14:17])


def test_values_that_are_not_finite_are_named_and_counted(
    tmp_path: Path, state: dict[str, Tensor], refused: Run
) -> None:
    state["conv.weight"][70:72, 3] = float("nan")
    state["conv.weight"][9000, 1] = float("-inf")
    save_file(state, tmp_path / "bad.safetensors")
    assert "conv.weight holds 3 values that are not finite" in refused(tmp_path / "bad.safetensors")
    torch.save(state, tmp_path / "bad.pt")
    assert "conv.weight holds 3 values that are not finite" in refused(tmp_path / "bad.pt")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats(tmp_path: Path, state: dict[str, Tensor], refused: Run, dtype: torch.dtype) -> None:
    state["fc.weight"] = state["fc.weight"].to(dtype)
    source, out = tmp_path / "small.safetensors", tmp_path / "out.safetensors"
    save_file(state, source)
    told = refused(source)
    assert "fc.weight is F8_" in told
    assert "bfloat16" in told
    denoise_checkpoint(source, out, noise_variance=0.1, exclude=["fc.weight"])
    assert load_file(out)["fc.weight"].view(torch.uint8).equal(state["fc.weight"].view(torch.uint8))


def test_values_past_what_a_float_can_square(tmp_path: Path, refused: Run) -> None:
    huge = torch.tensor([[1e300, -1e300]], dtype=torch.float64)
    save_file({"a.weight": huge}, tmp_path / "big.safetensors")
    assert "both must be finite" in refused(tmp_path / "big.safetensors")
