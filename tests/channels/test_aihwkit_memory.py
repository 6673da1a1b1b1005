"""Agreement of the built-in memories with aihwkit's models."""

import pytest
import torch
from torch import Tensor

from quietnn.channels.aihwkit_memory import AihwkitMemory
from quietnn.channels.memories import PCM, ReRAM
from quietnn.channels.moments import ErrorMoments
from quietnn.errors import MissingData, QuietnnError
from quietnn.noise import mean_of

CASES = [("pcm", 1.0), ("pcm", 3600.0), ("pcm", 3.15e7), ("reram", 1.0), ("reram", 86_400.0)]


@pytest.mark.analog
@pytest.mark.parametrize(("kind", "seconds"), CASES)
def test_the_two_models_agree(kind: str, seconds: float, shapes: dict[str, Tensor]) -> None:
    theirs = AihwkitMemory(kind, seconds).transmit(shapes, seed=0)
    ours = (PCM(seconds, compensate=False) if kind == "pcm" else ReRAM(seconds)).transmit(shapes, seed=0)
    assert isinstance(theirs.noise_variance, dict)
    for name, tensor in shapes.items():
        one, other = (ErrorMoments.of(tensor, found.received[name]) for found in (theirs, ours))
        assert one.gain == pytest.approx(other.gain, rel=0.02)
        assert one.noise_variance == pytest.approx(other.noise_variance, rel=0.06)
        assert one.noise_variance == pytest.approx(mean_of(theirs.noise_variance[name]), rel=0.05)


@pytest.mark.analog
@pytest.mark.parametrize(("kind", "seconds"), CASES)
def test_they_agree_at_every_conductance(kind: str, seconds: float) -> None:
    levels = torch.tensor([0.01, 0.1, 0.3, 0.6, 1.0])
    weights = levels.repeat_interleave(20_000)
    built_in = PCM(seconds) if kind == "pcm" else ReRAM(seconds)
    theirs = AihwkitMemory(kind, seconds).store(weights, seed=0, name="w")[0].view(5, -1)
    ours = built_in.store(weights, seed=0, name="w")[0].view(5, -1)
    assert torch.allclose(theirs.mean(1), ours.mean(1), rtol=0.02, atol=2e-4)
    assert torch.allclose(theirs.std(1), ours.std(1), rtol=0.04)


@pytest.mark.analog
def test_its_own_entry_point_gives_the_same_statistics(shapes: dict[str, Tensor]) -> None:
    from aihwkit.inference.noise.pcm import PCMLikeNoiseModel

    torch.manual_seed(0)
    tensor = shapes["gaussian"]
    theirs = ErrorMoments.of(tensor, PCMLikeNoiseModel(g_max=25.0).apply_noise(tensor, 3600.0))
    ours = ErrorMoments.of(tensor, PCM(3600.0, compensate=False).transmit({"w": tensor}, seed=1).received["w"])
    assert theirs.gain == pytest.approx(ours.gain, rel=0.02)
    assert theirs.noise_variance == pytest.approx(ours.noise_variance, rel=0.06)


@pytest.mark.analog
def test_torch_s_own_randomness_is_left_alone(shapes: dict[str, Tensor]) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = AihwkitMemory("pcm", 60.0).transmit(shapes, seed=0).received["gaussian"]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(AihwkitMemory("pcm", 60.0).transmit(shapes, seed=0).received["gaussian"], first)


def test_without_the_package_the_message_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aihwkit.inference.noise.pcm", None)
    with pytest.raises(MissingData, match=r"pip install --no-deps aihwkit.*built-in channel 'pcm'"):
        AihwkitMemory("pcm", 60.0).transmit({"w": torch.ones(3)}, seed=0)


def test_an_unknown_memory() -> None:
    with pytest.raises(QuietnnError, match="flash"):
        AihwkitMemory("flash")
