"""The named tasks, and yours by the name of the function that makes them: `package.module:function`."""

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from quietnn.errors import InvalidConfig, MissingData, check_is, suggest, unknown_choice
from quietnn.tasks.base import Task
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.models import IMAGE_MODELS

TASK_NAMES = ("digits", *(f"cifar10/{name}" for name in IMAGE_MODELS), "sst2/minilm")
"""What to suggest; `sst2/` takes any encoder."""

OWN = "package.module:function"
"""What a task of your own is called by."""

Made = TypeVar("Made")


def split_name(name: str) -> tuple[str, str]:
    """A task's family and member.

    >>> split_name("cifar10/resnet18")
    ('cifar10', 'resnet18')
    """
    if is_own(name):
        raise InvalidConfig(f"{name!r} is a task of your own, and this is for named ones: {', '.join(TASK_NAMES)}")
    family, _, member = name.partition("/")
    known = (
        name == "digits" or (family == "cifar10" and member in IMAGE_MODELS) or (family in ("sst2", "lm") and member)
    )
    if not known:
        raise unknown_choice("task", name, (*TASK_NAMES[:-1], "sst2/<encoder>", "lm/<folder>", OWN))
    return family, member


def load_task(name: str, *, data_dir: str | Path | None = None, weights: str | Path | None = None) -> Task:
    """A task with its clean weights, by its name or by that of a function of yours.

    Args:
        name: `digits`, `cifar10/<network>`, `sst2/<encoder>`, `lm/<folder>@<texts>`, or `package.module:function`
            for a function that returns a `Task`.
        data_dir: where data sets and weights lie; default `$QUIETNN_DATA`, then `~/.cache/quietnn`.
        weights: other weights: a safetensors file; for `sst2` and `lm` a folder in transformers layout; for your own
            either.

    Raises:
        InvalidConfig: if there is no such task.
        MissingData: if weights are not there, with every place looked in.
        InvalidWeights: if the weights do not fit the network, with the tensors' names.

    >>> len(load_task("digits").tuning_examples(100, 0))
    100
    """
    check_is(name, str, "task", "give a name: load_task('digits') or load_task('package.module:function')")
    if weights is not None:
        check_is(weights, (str, Path), "weights", "give a file: load_task('digits', weights='mine.safetensors')")
    path = Path(weights).expanduser() if weights is not None else None
    if is_own(name):
        return _own_task(name, data_dir=None if data_dir is None else Path(data_dir).expanduser(), weights=path)
    family, member = split_name(name)
    folder = resolve_data_dir(data_dir)
    if family == "cifar10":
        from quietnn.tasks.cifar10_task import cifar10_task

        return cifar10_task(member, data_dir=folder, weights=path)
    if family == "sst2":
        from quietnn.tasks.sst2 import sst2_task

        return sst2_task(member, data_dir=folder, weights=path)
    if family == "lm":
        from quietnn.tasks.language_model import named_language_model

        return named_language_model(member, data_dir=folder, weights=path)
    from quietnn.tasks.digits import digits_task

    return digits_task(weights=path)


def is_own(name: str) -> bool:
    """Whether a task's name is that of a function.

    >>> is_own("mine.tasks:sentiment"), is_own("cifar10/resnet18")
    (True, False)
    """
    return ":" in name


def _own_task(name: str, *, data_dir: Path | None, weights: Path | None) -> Task:
    """The task that a function returns, given `data_dir` and `weights` if it takes arguments of these names.

    If it takes no `weights`, other weights are loaded into the network that its task makes.
    """
    from quietnn.tasks.weights_file import load_weights

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
    """The function of this name, its module imported; it is looked for in the current folder too."""
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
    """What the function returns, given those of the offered arguments that it takes; refused if of another kind."""
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
