"""Tasks of your own, by the name of the function that makes them: `package.module:function`."""

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from quietnn.errors import InvalidConfig, MissingData, suggest
from quietnn.tasks.base import Task
from quietnn.tasks.weights_file import load_weights

Made = TypeVar("Made")


def is_own(name: str) -> bool:
    """Whether a task's name is that of a function.

    >>> is_own("mine.tasks:sentiment"), is_own("cifar10/resnet18")
    (True, False)
    """
    return ":" in name


def own_task(name: str, *, data_dir: Path | None = None, weights: Path | None = None) -> Task:
    """The task that a function returns.

    The function is given `data_dir` and `weights` if it takes arguments of these names. If it takes no `weights`, other
    weights are loaded into the network that its task makes.

    Args:
        name: `package.module:function`; the module is looked for in the current folder too.
        data_dir: where data sets lie, if that was said.
        weights: other weights: a file of tensors, or a folder in Hugging Face layout.

    Raises:
        MissingData: if there is no such module.
        InvalidConfig: if the module has no such function, or it does not return a `Task`.
        InvalidWeights: if the weights do not fit the network.
    """
    function = own_function(name)
    offered = {"data_dir": data_dir, "weights": weights}
    task = made_by(function, Task, offered, name=name)
    if weights is None or "weights" in _taken(function, offered):
        return task
    load_weights(task.load_model(), weights)  # refused now, and not in the middle of a sweep
    load_model = task.load_model

    def with_weights() -> Any:
        model = load_model()
        load_weights(model, weights)
        return model

    return replace(task, load_model=with_weights)


def own_function(name: str) -> Callable[..., Any]:
    """The function of this name, its module imported.

    Raises:
        MissingData: if there is no such module, or one that it imports is missing.
        InvalidConfig: if the name is incomplete, or names nothing that can be called.
    """
    module_name, _, function_name = name.partition(":")
    if not function_name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidConfig(f"{name!r} names no function; write package.module:function, for example mine.tasks:digits")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; a command's own folder is elsewhere
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise MissingData(
            f"cannot import {module_name} for the task {name!r}: {error}; looked in {here} and where Python looks "
            "(PYTHONPATH). Go to the folder that holds it, or install it"
        ) from error
    function = getattr(module, function_name, None)
    if function is None:
        callables = [key for key, value in vars(module).items() if inspect.isfunction(value) and key[0] != "_"]
        remedy = suggest(function_name, callables) if callables else "define it"
        raise InvalidConfig(f"{module_name} ({module.__file__}) has no {function_name!r}; {remedy}")
    if not callable(function):
        raise InvalidConfig(
            f"{name} is a {type(function).__name__}, which cannot be called; name a function that returns a Task"
        )
    return function  # type: ignore[no-any-return]


def made_by(function: Callable[..., Any], kind: type[Made], offered: dict[str, Any], *, name: str) -> Made:
    """What the function returns, given those of the offered arguments that it takes.

    Raises:
        InvalidConfig: if it needs other arguments, or returns something of another kind.
    """
    taken = _taken(function, offered)
    try:
        inspect.signature(function).bind(**taken)
    except TypeError as error:
        raise InvalidConfig(
            f"{name} cannot be called with {', '.join(offered)} or nothing: {error}; give its other arguments defaults"
        ) from error
    result = function(**taken)
    if not isinstance(result, kind):
        raise InvalidConfig(
            f"{name} returned a {type(result).__name__}; it must return a {kind.__name__}: "
            f"from {kind.__module__} import {kind.__name__}"
        )
    return result


def _taken(function: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Those of the offered arguments that the function takes by name."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return offered
    names = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return {key: value for key, value in offered.items() if key in names}
