"""Read the data inside a pickle without running it: containers, strings, numbers and uint8 arrays only.

A pickle is a program, and the usual reader calls whatever function the file names. This reader walks the same
opcodes but never imports or calls anything: the three globals that numpy needs to describe a uint8 array are
recognised by name and turned into an array here, every other global is refused.
"""

import math
import pickletools
from typing import Any

import numpy as np

from quietnn.errors import InvalidConfig


class _Mark:
    """The bottom of a group of stack items."""


class _Global:
    """A name that the file wants to import."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Shell:
    """An array or dtype that the file has announced but not yet filled."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_ALLOWED = (*_RECONSTRUCT, "numpy ndarray", "numpy dtype", "_codecs encode")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "BINFLOAT"),
    *("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
)
_EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}


def read_plain_pickle(content: bytes) -> Any:
    """The value that a pickle of plain data holds; byte strings of Python 2 come back as latin-1 text.

    Raises:
        InvalidConfig: if the pickle is damaged, or asks for anything but plain data.

    >>> import pickle
    >>> read_plain_pickle(pickle.dumps({"labels": [3, 8]}, protocol=2))
    {'labels': [3, 8]}
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name == "STOP":
                return machine.result()
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidConfig(f"the pickle is damaged ({error}); get the file again") from error
    raise InvalidConfig("the pickle is damaged (it does not end); get the file again")


class _Machine:
    """The stack and memo of a pickle, and the few opcodes that plain data needs."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def result(self) -> Any:
        """The one value left at the end."""
        (value,) = self.stack
        return value

    def step(self, name: str, argument: Any) -> None:
        """Carry out one opcode."""
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name == "MARK":
            self.stack.append(_Mark())
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif name not in ("PROTO", "FRAME"):
            self._combine(name, argument)

    def _combine(self, name: str, argument: Any) -> None:
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            self.stack[-size:] = [tuple(self.stack[-size:])]
        elif name in ("TUPLE", "LIST"):
            self.stack.append((tuple if name == "TUPLE" else list)(self._pop_to_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = [self.stack.pop()] if name == "APPEND" else self._pop_to_mark()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [self.stack.pop(-2), self.stack.pop()] if name == "SETITEM" else self._pop_to_mark()
            if not all(isinstance(key, str | bytes | int) for key in items[::2]):
                raise ValueError("a dict with keys that are neither text nor numbers")
            self._top(dict).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            parts = [argument] if name == "GLOBAL" else [self.stack.pop(-2), self.stack.pop()]
            if not all(isinstance(part, str) for part in parts):
                raise ValueError("a global whose name is no text")
            wanted = " ".join(parts)
            if wanted not in _ALLOWED:
                raise InvalidConfig(
                    f"the pickle asks for {wanted.replace(' ', '.')}, which plain data does not need; it was not run"
                )
            self.stack.append(_Global(wanted))
        elif name == "REDUCE":
            arguments, function = self.stack.pop(), self.stack.pop()
            self.stack.append(_reduce(function, arguments))
        elif name == "BUILD":
            self._build(self.stack.pop())
        else:
            raise InvalidConfig(f"the pickle uses the opcode {name}, which plain data does not need; it was not run")

    def _build(self, state: Any) -> None:
        shell = self.stack[-1]
        if not isinstance(shell, _Shell):
            raise ValueError("BUILD on a value that is neither array nor dtype")
        if shell.kind == "array":
            array = _make_array(state)
            self.stack[-1] = array
            self.memo = {key: array if value is shell else value for key, value in self.memo.items()}

    def _top(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"expected a {kind.__name__}")
        return self.stack[-1]

    def _pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while not isinstance(self.stack[-1], _Mark):
            items.append(self.stack.pop())
        self.stack.pop()
        return items[::-1]


def _reduce(function: Any, arguments: Any) -> Any:
    """What one of the recognised calls stands for."""
    name = function.name if isinstance(function, _Global) else "a value"
    if name in _RECONSTRUCT:
        return _Shell("array")
    if name == "numpy dtype" and arguments[0] in ("u1", "|u1"):
        return _Shell("uint8")
    if name == "_codecs encode" and arguments[1] in ("latin1", "latin-1"):
        return arguments[0].encode("latin-1")
    kind = type(arguments).__name__  # its text could be longer than any memory: a value may hold itself many times
    raise InvalidConfig(f"the pickle calls {name} with a {kind}, not plain data; it was not run")


def _make_array(state: tuple[Any, ...]) -> Any:
    """A uint8 array from numpy's own description of it: (version, shape, dtype, fortran order, bytes)."""
    _, shape, dtype, fortran_order, data = state
    if not isinstance(dtype, _Shell) or dtype.kind != "uint8":
        raise ValueError("an array that is not uint8")
    buffer = data.encode("latin-1") if isinstance(data, str) else data
    if not isinstance(buffer, bytes):  # of a number, bytes() would make as many zeros
        raise ValueError(f"an array whose values are a {type(data).__name__}")
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError("an array whose shape is not made of sizes")
    if math.prod(shape) != len(buffer):
        raise ValueError(f"an array of {math.prod(shape):,} values with {len(buffer)} bytes")
    return np.frombuffer(buffer, dtype=np.uint8).reshape(shape, order="F" if fortran_order else "C")
