"""Between Flower's records and state dicts."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from quietnn.errors import InvalidWeights
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


def update_of(reply: Message, state: Weights) -> dict[str, Tensor]:
    """How a device changed the state dict that was broadcast: `w_m - w`, from the weights in its reply.

    Raises:
        InvalidWeights: if the reply holds no weights, or others than those that were sent.
    """
    found = list(reply.content.array_records.values())
    if len(found) != 1:
        raise InvalidWeights(f"a reply holds {len(found)} records of arrays; a device sends its weights as one")
    trained = to_state(found[0])
    if trained.keys() != state.keys():
        odd = sorted(trained.keys() ^ state.keys())[0]
        raise InvalidWeights(f"the weights of a reply and those that were sent differ in {odd!r}")
    return {name: trained[name].view(tensor.shape) - tensor for name, tensor in state.items()}


def with_arrays(reply: Message, arrays: ArrayRecord) -> Message:
    """The reply with other arrays in the place of its own; everything else in it stays."""
    name = next(iter(reply.content.array_records))
    records = {key: record for key, record in reply.content.items() if key != name}
    reply.content = RecordDict({name: arrays, **records})
    return reply


def flat(metrics: MetricRecord | Mapping[str, object] | None) -> dict[str, object]:
    """Metrics as entries of a record: dashes in names become underscores."""
    return {} if metrics is None else {key.replace("-", "_"): value for key, value in metrics.items()}


def _plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()
