"""The named tasks, and yours."""

from pathlib import Path

from quietnn.errors import InvalidConfig, check_is, unknown_choice
from quietnn.tasks.base import Task
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.own import is_own, own_task

TASK_NAMES = ("digits", *(f"cifar10/{name}" for name in IMAGE_MODELS), "sst2/minilm")
"""What to suggest; `sst2/` takes any encoder."""


OWN = "package.module:function"
"""What a task of your own is called by."""


def split_name(name: str) -> tuple[str, str]:
    """A task's family and member.

    Raises:
        InvalidConfig: if there is no such task, with the closest name there is.

    >>> split_name("cifar10/resnet18")
    ('cifar10', 'resnet18')
    """
    if is_own(name):
        raise InvalidConfig(f"{name!r} is a task of your own, and this is for named ones: {', '.join(TASK_NAMES)}")
    family, _, member = name.partition("/")
    known = name == "digits" or (family == "cifar10" and member in IMAGE_MODELS) or (family == "sst2" and member)
    if not known:
        raise unknown_choice("task", name, (*TASK_NAMES[:-1], "sst2/<encoder>", OWN))
    return family, member


def load_task(name: str, *, data_dir: str | Path | None = None, weights: str | Path | None = None) -> Task:
    """A task with its clean weights, by its name or by that of a function of yours.

    Args:
        name: `digits`, `cifar10/<network>`, `sst2/<encoder>`, or `package.module:function` for a function that returns
            a `Task`.
        data_dir: where data sets and weights lie; default `$QUIETNN_DATA`, then `~/.cache/quietnn`.
        weights: other weights: a safetensors file, for `sst2` a folder in transformers layout; for your own either.

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
        return own_task(name, data_dir=None if data_dir is None else Path(data_dir).expanduser(), weights=path)
    family, member = split_name(name)
    folder = resolve_data_dir(data_dir)
    if family == "cifar10":
        from quietnn.tasks.cifar10_task import cifar10_task

        return cifar10_task(member, data_dir=folder, weights=path)
    if family == "sst2":
        from quietnn.tasks.encoders import sst2_task

        return sst2_task(member, data_dir=folder, weights=path)
    from quietnn.tasks.digits import digits_task

    return digits_task(weights=path)
