"""Replies of devices that mean harm, or are broken: by name, what each makes of the honest reply.

The deployment test copies this file into a Flower app, so it imports nothing but Flower and numpy.
"""

import io
from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

NAN, INF = float("nan"), float("inf")
Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def arrays_of(reply: Message) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in reply.content["arrays"].items()}


def weights(change: Change) -> Callable[[Message, Message], Message]:
    """An honest reply whose weights are changed."""

    def make(message: Message, reply: Message) -> Message:
        changed = {name: Array(np.asarray(array)) for name, array in change(arrays_of(reply)).items()}
        return Message(
            RecordDict({"arrays": ArrayRecord(changed), "metrics": reply.content["metrics"]}), reply_to=message
        )

    return make


def raw(data: Callable[[bytes], bytes], stype: str = "numpy.ndarray") -> Callable[[Message, Message], Message]:
    """An honest reply whose first tensor has other bytes, which declares itself as before."""

    def make(message: Message, reply: Message) -> Message:
        arrays = dict(reply.content["arrays"])
        name, array = next(iter(arrays.items()))
        arrays[name] = Array(array.dtype, array.shape, stype, data(array.data))
        return Message(
            RecordDict({"arrays": ArrayRecord(arrays), "metrics": reply.content["metrics"]}), reply_to=message
        )

    return make


def metrics(**changed: object) -> Callable[[Message, Message], Message]:
    """An honest reply with other numbers; None leaves one out."""

    def make(message: Message, reply: Message) -> Message:
        said = {**reply.content["metrics"], **{name.replace("_", "-"): value for name, value in changed.items()}}
        kept = MetricRecord({name: value for name, value in said.items() if value is not None})
        return Message(RecordDict({"arrays": reply.content["arrays"], "metrics": kept}), reply_to=message)

    return make


def content(make: Callable[[RecordDict], dict[str, object]]) -> Callable[[Message, Message], Message]:
    """A reply of other records."""
    return lambda message, reply: Message(RecordDict(make(reply.content)), reply_to=message)


def first(found: dict[str, np.ndarray], change: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    name = next(iter(found))
    return {**found, name: change(found[name])}


def floats(found: dict[str, np.ndarray], change: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    return {name: change(array) if array.dtype.kind == "f" else array for name, array in found.items()}


def named(found: dict[str, np.ndarray], end: str, value: float) -> dict[str, np.ndarray]:
    return {name: np.full_like(array, value) if name.endswith(end) else array for name, array in found.items()}


def header(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    """An array that has a header and no numbers."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue()


HOSTILE: dict[str, Callable[[Message, Message], Message]] = {
    "wrong shape": weights(lambda found: first(found, lambda array: array[1:])),
    "flat": weights(lambda found: first(found, np.ravel)),
    "wrong type": weights(lambda found: floats(found, np.float64)),
    "integers": weights(lambda found: floats(found, lambda array: array.astype(np.int64))),
    "other byte order": weights(lambda found: floats(found, lambda array: array.astype(">f4"))),
    "garbage bytes": raw(lambda data: bytes(range(256)) * (len(data) // 256 + 1)),
    "no bytes": raw(lambda data: b""),
    "half of the bytes": raw(lambda data: data[: len(data) // 2]),
    "more bytes": raw(lambda data: data + bytes(5)),
    "ten times the bytes": raw(lambda data: data * 10),
    "huge header": raw(lambda data: header((2**40,)) + data[128:]),
    "header of pickles": raw(lambda data: header((), "|O") + data[128:]),
    "header of code": raw(
        lambda data: b"\x93NUMPY\x01\x00\x76\x00" + b"__import__('os').abort()".ljust(118) + data[128:]
    ),
    "other packing": raw(lambda data: data, stype="pickle"),
    "a tensor less": weights(lambda found: dict(list(found.items())[1:])),
    "a tensor more": weights(lambda found: {**found, "back\x1b[2Jdoor": np.zeros(3)}),
    "NaN weights": weights(lambda found: floats(found, lambda array: array * np.float32(NAN))),
    "infinite weights": weights(lambda found: first(found, lambda array: array + np.float32(INF))),
    "weights times -50": weights(lambda found: floats(found, lambda array: array * np.float32(-50))),
    "weights plus 1e30": weights(lambda found: floats(found, lambda array: array + np.float32(1e30))),
    "negative variances": weights(lambda found: named(found, "running_var", -0.01)),
    "huge statistics": weights(lambda found: named(found, "running_mean", 1e6)),
    "a counter that leaps": weights(lambda found: named(found, "num_batches_tracked", 2**62)),
    "NaN examples": metrics(num_examples=NAN),
    "infinite examples": metrics(num_examples=INF),
    "negative examples": metrics(num_examples=-300),
    "no examples": metrics(num_examples=0),
    "a list of examples": metrics(num_examples=[1, 2]),
    "examples left out": metrics(num_examples=None),
    "loss left out": metrics(loss=None),
    "NaN loss": metrics(loss=NAN),
    "loss of 1e308": metrics(loss=1e308),
    "no metrics": content(lambda found: {"arrays": found["arrays"]}),
    "two metrics": content(lambda found: {**found, "more": MetricRecord({"loss": 1.0})}),
    "no arrays": content(lambda found: {"metrics": found["metrics"]}),
    "two arrays": content(lambda found: {**found, "more": found["arrays"]}),
    "nothing": content(lambda found: {}),
    "diverged without a reason": content(lambda found: {"diverged": ConfigRecord()}),
    "diverged for a list": content(lambda found: {"diverged": ConfigRecord({"reason": [1, 2]})}),
    "diverged": content(lambda found: {"diverged": ConfigRecord({"reason": "the loss became nan"})}),
    "an error of a megabyte": lambda message, reply: Message(Error(0, "\x1b[2J\n" + "x" * 2**20), reply_to=message),
}
