"""Between Flower's records and state dicts."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from torch import Tensor

from quietnn.weights import Weights


def to_state(arrays: ArrayRecord) -> dict[str, Tensor]:
    """The tensors of a record, each with memory of its own."""
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


def to_arrays(state: Weights) -> ArrayRecord:
    """A state dict as Flower sends it.

    >>> {name: tensor.tolist() for name, tensor in to_state(to_arrays({"fc.weight": torch.tensor([1.0, 2.0])})).items()}
    {'fc.weight': [1.0, 2.0]}
    """
    return ArrayRecord({name: Array(_plain(tensor)) for name, tensor in state.items()})


def to_wide_arrays(state: Weights) -> ArrayRecord:
    """A state dict in double precision, so that a mean of equal arrays is that array again to the last bit."""
    return ArrayRecord({name: Array(_plain(tensor.double())) for name, tensor in state.items()})


def in_kind(arrays: ArrayRecord, like: Weights) -> dict[str, Tensor]:
    """The tensors of a record in the types they had before a strategy computed with them; counters are rounded."""
    return {
        name: (tensor if like[name].is_floating_point() else tensor.round()).to(like[name].dtype).view(like[name].shape)
        for name, tensor in to_state(arrays).items()
    }


def flat(metrics: MetricRecord | Mapping[str, object] | None) -> dict[str, object]:
    """Metrics as entries of a record: dashes in names become underscores."""
    return {} if metrics is None else {key.replace("-", "_"): value for key, value in metrics.items()}


def _plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()
