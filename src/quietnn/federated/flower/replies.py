"""What a stranger replied, read with care: a reply is used whole, or it is refused with a reason.

Whatever a client sends can be wrong, by accident or on purpose: names, shapes, types, bytes, numbers. Nothing of it
is computed with, allocated for, or written down before it was compared with what was asked for.
"""

import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.common.constant import SType
from numpy.lib import format as npy
from torch import Tensor

from quietnn.federated.flower.protocol import BadReply, diverged_in, plain
from quietnn.weights import Weights

NO_ANSWER = "no answer"
_HEADER_BYTES = 1024
"""More than any honest header of an array takes; what declares itself larger than the tensor plus this is not read."""
_LARGEST_NUMBER = 1e18
"""Sums of metrics below it stay finite."""


@dataclass(frozen=True)
class Reply:
    """What a device sent: how it changed every tensor, and its numbers by name."""

    update: dict[str, Tensor]
    metrics: dict[str, float]


def read_replies(
    answers: Mapping[int, Message], chosen: Iterable[int], state: Weights, *, numbers: Collection[str], weighted_by: str
) -> tuple[dict[int, Reply], dict[int, str], dict[int, str]]:
    """By device: the replies that can be used, why others failed, and why the training of others diverged."""
    read: dict[int, Reply] = {}
    failed: dict[int, str] = {}
    diverged: dict[int, str] = {}
    for device in chosen:
        reply = answers.get(device)
        try:
            if reply is None:
                failed[device] = NO_ANSWER
            elif reply.has_error():
                failed[device] = plain(reply.error.reason)
            elif (reason := diverged_in(reply)) is not None:
                diverged[device] = reason
            else:
                read[device] = read_reply(reply, state, numbers=numbers, weighted_by=weighted_by)
        except BadReply as error:
            failed[device] = str(error)
    return read, failed, diverged


def read_reply(reply: Message, state: Weights, *, numbers: Collection[str], weighted_by: str) -> Reply:
    """The update `w_m - w` and the numbers in a reply to the broadcast of `state`; metrics not named are not read.

    The metric `weighted_by` says how many examples there were; it must be above zero, and is not used. A reply in which
    anything is missing or not what it has to be is a `BadReply`.
    """
    arrays = list(reply.content.array_records.values())
    if len(arrays) != 1:
        raise BadReply(f"it holds {len(arrays)} records of arrays; weights come as one")
    update = _update(arrays[0], state)
    found = numbers_in(reply, (*numbers, weighted_by))
    if not found.pop(weighted_by) > 0:
        raise BadReply(f"{weighted_by} is not above zero")
    return Reply(update, found)


def numbers_in(reply: Message, names: Iterable[str]) -> dict[str, float]:
    """The metrics with these names, each one finite number; anything else is a `BadReply`."""
    records: list[MetricRecord] = list(reply.content.metric_records.values())
    if len(records) != 1:
        raise BadReply(f"it holds {len(records)} records of metrics; they come as one")
    found: dict[str, float] = {}
    for name in names:
        value = records[0].get(name)
        if type(value) not in (int, float) or not abs(value) <= _LARGEST_NUMBER:  # type: ignore[arg-type]
            raise BadReply(f"its metric {name} is {plain(value)}; a finite number is wanted")
        found[name] = float(value)  # type: ignore[arg-type]
    return found


def comparable(replies: Iterable[Message], *, weighted_by: str) -> list[Message]:
    """The replies that a strategy can average: the same names as most of them have, one finite number each."""
    sound: list[tuple[frozenset[str], Message]] = []
    for reply in replies:
        try:
            if not reply.has_error():
                names = frozenset(name for record in reply.content.metric_records.values() for name in record)
                if numbers_in(reply, names | {weighted_by})[weighted_by] > 0:
                    sound.append((names, reply))
        except BadReply:
            continue
    if not sound:
        return []
    most = Counter(names for names, _ in sound).most_common(1)[0][0]
    return [reply for names, reply in sound if names == most]


def _update(arrays: ArrayRecord, state: Weights) -> dict[str, Tensor]:
    if arrays.keys() != state.keys():
        missing, strange = sorted(state.keys() - arrays.keys()), sorted(map(str, arrays.keys() - state.keys()))
        differs = f"{missing[0]} is missing" if missing else f"nobody asked for {plain(strange[0])}"
        raise BadReply(f"its weights are not those that were sent: {differs}")
    return {name: _tensor(name, arrays[name], tensor) - tensor for name, tensor in state.items()}


def _tensor(name: str, array: Array, like: Tensor) -> Tensor:
    """The array as a tensor of the same type and shape as `like`; no more memory is taken than that one takes."""
    num_bytes = like.numel() * like.element_size()
    if len(array.data) > num_bytes + _HEADER_BYTES:
        raise BadReply(f"{name} has {len(array.data):,} bytes; it takes {num_bytes:,}")
    wanted = np.dtype(str(like.dtype).removeprefix("torch."))
    stream = io.BytesIO(array.data)
    try:
        if array.stype != SType.NUMPY or npy.read_magic(stream) != (1, 0):
            raise ValueError
        shape, in_columns, dtype = npy.read_array_header_1_0(stream, max_header_size=_HEADER_BYTES)
    except Exception as error:  # strangers wrote these bytes: however the parser fails, they are no array
        raise BadReply(f"{name} is no array in NumPy's format") from error
    if dtype != wanted:
        raise BadReply(f"{name} is of type {plain(dtype)}; {wanted} was sent")
    if shape != tuple(like.shape):
        raise BadReply(f"{name} has the shape {plain(shape)}; {tuple(like.shape)} was sent")
    if len(array.data) - stream.tell() != num_bytes:
        raise BadReply(f"{name} has {len(array.data) - stream.tell():,} bytes of numbers; it takes {num_bytes:,}")
    values = np.frombuffer(array.data, dtype=wanted, offset=stream.tell())
    return torch.from_numpy(values.reshape(shape, order="F" if in_columns else "C").copy(order="C"))
