"""The errors a user can cause. Each message names the value, the limit and the remedy."""

import difflib
import inspect
from collections.abc import Iterable


class QuietnnError(Exception):
    """Anything quietnn refuses to do. The command line prints it and exits with code 2.

    >>> import torch, quietnn
    >>> try:
    ...     quietnn.denoise(torch.ones(4), noise_variance=-1.0)
    ... except QuietnnError as error:
    ...     print("refused")
    refused
    """


class InfeasibleTemperatures(QuietnnError):
    """A `(lambda', beta)` at or past the pole `lambda' = 1 + eta`, or below zero.

    A search records such a point and goes on; everywhere else it is the caller's mistake.
    """


class InvalidWeights(QuietnnError):
    """Weights that cannot be sent or denoised: not finite, not floating point, or not the expected ones."""


class InvalidConfig(QuietnnError):
    """A configuration, argument or record that does not fit, with the name that would."""


class MissingData(QuietnnError):
    """A data set, checkpoint or optional package that is not there, and where it was looked for."""


def check_is(value: object, kind: type | tuple[type, ...], name: str, remedy: str) -> None:
    """Refuse an argument of another kind.

    >>> check_is(3, str, "task", "give a name: load_task('digits')")
    Traceback (most recent call last):
    quietnn.errors.InvalidConfig: task is a int; give a name: load_task('digits')
    """
    if not isinstance(value, kind):
        raise InvalidConfig(f"{name} is {_kind_of(value)}; {remedy}")


def _kind_of(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def check_function(name: str, function: object, parameters: str) -> None:
    """Refuse what is given as a function and cannot be called with these arguments; None is no function at all."""
    if function is None:
        return
    remedy = f"give a function: {name}=lambda {parameters}: ..."
    if isinstance(function, type) or not callable(function):
        raise InvalidConfig(f"{name} is {_kind_of(function)}; {remedy}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, and does not tell
        return
    try:
        signature.bind(*parameters.split(", "))
    except TypeError as error:
        raise InvalidConfig(f"{name} cannot be called with ({parameters}): {error}; {remedy}") from error


def suggest(word: object, choices: Iterable[str]) -> str:
    """The end of a message about a name that is not on a list: the nearest one, and all of them.

    >>> suggest("centered", ["centred", "uncentred"])
    "did you mean 'centred'? choose one of centred, uncentred"
    """
    names = [str(choice) for choice in choices]
    near = difflib.get_close_matches(str(word), names, n=1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"choose one of {', '.join(names)}"


def unknown_choice(kind: str, value: object, choices: Iterable[str]) -> InvalidConfig:
    """The error for a name that is not on a list.

    >>> print(unknown_choice("form", "round", ["centred", "uncentred"]))
    form is 'round'; choose one of centred, uncentred
    """
    return InvalidConfig(f"{kind} is {value!r}; {suggest(value, choices)}")
