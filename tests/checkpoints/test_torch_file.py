"""PyTorch files: equal to the library, ties and everything else kept, nothing run."""

import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.channels.awgn import AWGN
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.inspect import inspect_checkpoint
from quietnn.checkpoints.opening import open_checkpoint
from quietnn.checkpoints.transmit import transmit_checkpoint
from quietnn.errors import InvalidWeights

Run = Callable[..., str]


def load(path: Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = torch.load(path, weights_only=True, mmap=True)
    return state


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_equal_to_the_library(tmp_path: Path, dtype: torch.dtype, groups: str) -> None:
    model = nn.Sequential(nn.Linear(40, 70), nn.BatchNorm1d(70), nn.Linear(70, 3)).to(dtype)
    clean, noisy, out = (tmp_path / f"{name}.pt" for name in ("clean", "noisy", "out"))
    torch.save(model.state_dict(), clean)
    variance = transmit_checkpoint(clean, noisy, channel=AWGN(wnr_db=2.0), seed=3)
    sent = quietnn.transmit(model.state_dict(), wnr_db=2.0, seed=3)
    assert variance == sent.noise_variance
    denoise_checkpoint(noisy, out, noise_variance=variance, groups=groups)
    expected = quietnn.denoise(sent.received, noise_variance=variance, groups=groups).model
    found = load(out)
    assert list(found) == list(expected)
    assert all(found[name].equal(tensor) and found[name].dtype == tensor.dtype for name, tensor in expected.items())
    model.load_state_dict(found)
    assert [step["verb"] for step in inspect_checkpoint(out).checkpoint.history] == ["transmit", "denoise"]


def test_a_training_checkpoint_keeps_the_rest(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    torch.save({"epoch": 3, "model": model.state_dict(), "losses": [1.0, 0.5]}, tmp_path / "in.pt")
    denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.01)
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert (found["epoch"], found["losses"]) == (3, [1.0, 0.5])
    expected = quietnn.denoise(model.state_dict(), noise_variance=0.01).model
    assert all(found["model"][name].equal(tensor) for name, tensor in expected.items())


def test_tied_tensors_stay_tied_and_get_one_noise(tmp_path: Path) -> None:
    tied = torch.randn(5, 5)
    state = {"head.weight": tied, "embed.weight": tied, "other.weight": torch.randn(3, 3)}
    torch.save(state, tmp_path / "in.pth")
    transmit_checkpoint(tmp_path / "in.pth", tmp_path / "out.pth", channel=AWGN(noise_variance=1.0), seed=1)
    found = torch.load(tmp_path / "out.pth", weights_only=True)
    assert found["head.weight"].data_ptr() == found["embed.weight"].data_ptr()
    expected = quietnn.transmit(state, noise_variance=1.0, seed=1).received
    assert all(found[name].equal(tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("options", [{"exclude": ["head.weight"]}, {"noisy": ["embed.weight"]}], ids=str)
def test_a_tensor_with_two_names_is_not_half_noisy(tmp_path: Path, options: dict[str, list[str]]) -> None:
    tied = torch.randn(5, 5)
    state = {"head.weight": tied, "embed.weight": tied, "other.weight": torch.randn(3, 3)}
    torch.save(state, tmp_path / "in.pt")
    with pytest.raises(InvalidWeights, match=r"embed.weight and head.weight are two names of one tensor"):
        denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.1, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out.pt").exists()
    exclude = ["head.weight", "embed.weight"]
    denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.1, exclude=exclude)
    assert load(tmp_path / "out.pt")["head.weight"].equal(tied)


def test_a_tensor_that_a_normalisation_layer_shares(tmp_path: Path) -> None:
    shared = torch.randn(6)
    state = {"norm.weight": shared, "fc.weight": torch.randn(3, 6), "fc.bias": shared}
    torch.save(state, tmp_path / "in.pt")
    with pytest.raises(InvalidWeights, match=r"fc.bias and norm.weight are two names.*--exclude 'fc.bias'"):
        inspect_checkpoint(tmp_path / "in.pt")
    in_memory = quietnn.transmit(state, noise_variance=1.0, seed=1).received
    assert in_memory["fc.bias"].equal(shared)
    transmit_checkpoint(
        tmp_path / "in.pt", tmp_path / "out.pt", channel=AWGN(noise_variance=1.0), seed=1, exclude=["fc.bias"]
    )
    assert all(load(tmp_path / "out.pt")[name].equal(tensor) for name, tensor in in_memory.items())


def test_a_record_that_is_damaged_or_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a.weight": torch.randn(3, 3)}, tmp_path / "in.pt")
    denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.1)
    content = (tmp_path / "out.pt").read_bytes()
    (tmp_path / "bad.pt").write_bytes(content.replace(b'"verb"', b'"werb"'))
    with pytest.raises(InvalidWeights, match=r"quietnn.json in .* is damaged"):
        inspect_checkpoint(tmp_path / "bad.pt")
    monkeypatch.setattr("quietnn.checkpoints.torch_file._MAX_RECORD_BYTES", 50)
    with pytest.raises(InvalidWeights, match="more than 50 bytes"):
        inspect_checkpoint(tmp_path / "out.pt")


def test_sparse_tensors_are_copied_when_they_are_left_out(tmp_path: Path) -> None:
    torch.save({"a.weight": torch.randn(3, 3), "s": torch.eye(3).to_sparse()}, tmp_path / "in.pt")
    denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.1, exclude=["s"])
    assert load(tmp_path / "out.pt")["s"].to_dense().equal(torch.eye(3))


def test_files_from_before_torch_1_6(tmp_path: Path) -> None:
    state = {"a.weight": torch.randn(3, 3)}
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    denoise_checkpoint(tmp_path / "old.pt", tmp_path / "new.pt", noise_variance=0.01)
    assert load(tmp_path / "new.pt")["a.weight"].equal(quietnn.denoise(state, noise_variance=0.01).model["a.weight"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.ones(3), "holds a Tensor, not a state dict"),
        ({"epoch": 3}, "no tensors by name"),
        ({"a": {"w": torch.ones(2)}, "b": {"w": torch.ones(2)}}, r"several state dicts \(a, b\)"),
        ({3: torch.ones(2)}, "no tensors by name"),
        (
            {"state_dict": {"w": torch.ones(2, 2)}, "lr": torch.tensor(0.1)},
            r"\(lr\) beside a state dict \(state_dict\)",
        ),
        ({"a.weight": torch.ones(2, 2, device="meta")}, "a.weight is on the meta device"),
        ({"a\ud800.weight": torch.ones(2, 2)}, r"called 'a\\ud800.weight', which is no text"),
        ({"a.weight": torch.ones(2, 2).to_sparse()}, "dense 16, 32 and 64 bit"),
        ({"a.weight": torch.ones(2, 2).to(torch.float8_e5m2)}, "bfloat16"),
    ],
)
def test_contents_that_are_not_a_model(tmp_path: Path, content: object, message: str) -> None:
    torch.save(content, tmp_path / "in.pt")
    with pytest.raises(InvalidWeights, match=message):
        denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["in.pt"]


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    torch.save({"a.weight": torch.arange(12.0).view(3, 4)}, tmp_path / "in.pt")
    for name in ("one.pt", "two.pt"):
        denoise_checkpoint(tmp_path / "in.pt", tmp_path / name, noise_variance=0.01)
    assert (tmp_path / "one.pt").read_bytes() == (tmp_path / "two.pt").read_bytes()
    assert open_checkpoint(tmp_path / "one.pt").files == (tmp_path / "one.pt",)


def test_different_views_of_the_same_numbers_are_refused(tmp_path: Path) -> None:
    """A matrix and its transpose would each get a noise of their own."""
    matrix = torch.randn(20, 10)
    for other in (matrix.t(), matrix[3:], matrix.view(-1)):
        torch.save({"a.weight": matrix, "b.weight": other}, tmp_path / "in.pt")
        with pytest.raises(InvalidWeights, match="views of the same numbers"):
            denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.01)
    for number, parts in enumerate([(matrix[:10], matrix[10:]), (matrix[:, :5], matrix[:, 5:])]):
        torch.save({"a.weight": parts[0], "b.weight": parts[1]}, tmp_path / "in.pt")
        denoise_checkpoint(tmp_path / "in.pt", tmp_path / f"{number}.pt", noise_variance=0.01)


def test_tensors_that_are_more_than_they_seem(tmp_path: Path) -> None:
    """Four bytes that stand for four terabytes, tensors without a shape; a negated view is what it shows."""
    for value, message in (
        (torch.zeros(1).expand(10**6, 10**6), "repeats 4 bytes"),
        (torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged), "nested"),
    ):
        torch.save({"a.weight": value, "b.weight": torch.ones(2, 2)}, tmp_path / "in.pt")
        with pytest.raises(InvalidWeights, match=message):
            denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.01, exclude=["a.*"])
    torch.save({"a.weight": torch._neg_view(torch.ones(3, 3))}, tmp_path / "in.pt")
    denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.0)
    assert torch.load(tmp_path / "out.pt")["a.weight"].tolist() == [[-1.0] * 3] * 3


def repacked(path: Path, compression: int) -> None:
    """The same archive with its records packed another way."""
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", compression) as new:
        for name, record in content.items():
            new.writestr(name, record)


def test_a_file_whose_records_are_deflated_holds_the_same_numbers(tmp_path: Path) -> None:
    state = nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40)).state_dict()
    torch.save(state, tmp_path / "in.pt")
    repacked(tmp_path / "in.pt", zipfile.ZIP_DEFLATED)
    found = open_checkpoint(tmp_path / "in.pt")
    assert all(found.read(name).equal(tensor) for name, tensor in state.items())
    denoise_checkpoint(tmp_path / "in.pt", tmp_path / "out.pt", noise_variance=0.01)
    written = load(tmp_path / "out.pt")
    assert all(
        written[name].equal(tensor) for name, tensor in quietnn.denoise(state, noise_variance=0.01).model.items()
    )


def test_a_small_file_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    torch.save({"a.weight": torch.zeros(40_000_000)}, tmp_path / "in.pt")
    repacked(tmp_path / "in.pt", zipfile.ZIP_DEFLATED)
    with pytest.raises(InvalidWeights, match=r"would grow to 160,0.* bytes when unpacked"):
        open_checkpoint(tmp_path / "in.pt")


class Trap:
    """Would make a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["zip", "plain"])
def test_a_pickle_that_would_run_code_does_not(tmp_path: Path, refused: Run, kind: str) -> None:
    source = tmp_path / "trap.pt"
    content = {"w.weight": torch.ones(2, 2), "trap": Trap(tmp_path / "sprung")}
    if kind == "zip":
        torch.save(content, source)
    else:
        source.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    told = refused(source)
    assert "quietnn runs no code from files" in told or "not a whole PyTorch file" in told
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 no archive", struct.pack("<q", 3)])
def test_broken_torch_files(tmp_path: Path, refused: Run, content: bytes) -> None:
    (tmp_path / "bad.pt").write_bytes(content)
    told = refused(tmp_path / "bad.pt")
    assert "not a whole PyTorch file" in told or "quietnn runs no code" in told
