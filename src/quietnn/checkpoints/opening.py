"""Open whatever a user names: a safetensors file, a model folder, a PyTorch file."""

from pathlib import Path

from quietnn.checkpoints.base import Checkpoint
from quietnn.checkpoints.streamed import StreamedCheckpoint
from quietnn.checkpoints.torch_file import SUFFIXES, TorchCheckpoint
from quietnn.errors import InvalidWeights, MissingData


def open_checkpoint(path: Path) -> Checkpoint:
    """Read and check everything but the weights themselves (a PyTorch file is loaded, but runs nothing).

    Raises:
        MissingData: if nothing is there, or no model is in the folder.
        InvalidWeights: if a file is broken or of a kind that quietnn does not read.
    """
    if not path.exists():
        raise MissingData(f"there is no {path}; give a .safetensors or .pt file, or a model folder")
    if path.is_dir() or path.suffix == ".safetensors":
        return StreamedCheckpoint.open(path)
    if path.suffix in SUFFIXES:
        return TorchCheckpoint.open(path)
    raise InvalidWeights(f"{path} ends in {path.suffix!r}; quietnn reads .safetensors, .pt, .pth and model folders")
