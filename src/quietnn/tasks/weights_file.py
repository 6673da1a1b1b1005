"""A network's weights as one file: loaded if they fit, written whole or not at all."""

from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from quietnn.checkpoints.folder import find_shards
from quietnn.checkpoints.torch_file import SUFFIXES, TorchCheckpoint
from quietnn.errors import InvalidWeights, MissingData
from quietnn.files import replacing
from quietnn.targets import some_of, split_ties
from quietnn.weights import Weights, check_weights


def load_weights(model: nn.Module, path: Path) -> dict[str, str]:
    """Load the weights in place and return the file's metadata. The model stays as it was if they do not fit."""
    weights, metadata = _read(path)
    expected = model.state_dict()
    for other, name in split_ties(expected, [name for name in expected if name not in weights]):
        weights[other] = weights[name]  # a file holds tied weights once
    problems = {
        # Counters of seen batches are bookkeeping that some publishers leave out.
        "missing": [name for name in expected if name not in weights and not name.endswith("num_batches_tracked")],
        "unexpected": [name for name in weights if name not in expected],
        "of another shape": [
            f"{name} {tuple(tensor.shape)} for {tuple(expected[name].shape)}"
            for name, tensor in weights.items()
            if name in expected and tensor.shape != expected[name].shape
        ],
    }
    if any(problems.values()):
        told = "; ".join(f"{kind}: {some_of(names)}" for kind, names in problems.items() if names)
        raise InvalidWeights(f"{path} does not fit this model ({told}); use weights of the same network")
    _check_finite(path, weights)
    model.load_state_dict({**expected, **weights})
    return metadata


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file or model folder; of a PyTorch file, the tensors."""
    if path.suffix in SUFFIXES:
        return dict(TorchCheckpoint.open(path).state), {}
    if not path.exists():
        raise MissingData(f"there is no weights file {path}; give an existing .safetensors or .pt file, or a folder")
    try:
        shards = find_shards(path)
    except InvalidWeights as error:
        raise InvalidWeights(f"{path} is not a whole safetensors file ({error}); fetch or train it again") from error
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for shard in shards:
        metadata |= shard.header.metadata or {}
        with safe_open(shard.path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return tensors, metadata


def write_weights(path: Path, weights: dict[str, Tensor], *, metadata: dict[str, str]) -> None:
    """Write the file beside its name, then put it there: whole, or not at all. Nothing infinite is written."""
    _check_finite(path, weights)
    with replacing(path) as beside:
        save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, beside, metadata=metadata)


def _check_finite(path: Path, weights: Weights) -> None:
    """Refuse weights that no network can compute with, and name the file."""
    try:
        check_weights({name: one for name, one in weights.items() if one.is_floating_point() and one.numel()})
    except InvalidWeights as error:
        raise InvalidWeights(f"{path}: {error}") from error
