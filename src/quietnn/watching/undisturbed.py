"""A model that is run and afterwards is as it was, the statistics of its BatchNorms aside."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

STATISTICS = ("running_mean", "running_var")
"""The buffers of a BatchNorm that are not put back."""


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; then modes and buffers, such as one that counts calls, are what they were.

    >>> model = nn.BatchNorm1d(2).train()
    >>> with undisturbed(model):
    ...     model.training, model.num_batches_tracked.add_(7)
    (False, tensor(7))
    >>> model.training, model.num_batches_tracked
    (True, tensor(0))
    """
    modes = {module: module.training for module in model.modules()}
    buffers = [
        (module, name, buffer, buffer.clone(), _version(buffer))
        for module in modes
        for name, buffer in module._buffers.items()
        if buffer is not None and not (isinstance(module, nn.modules.batchnorm._BatchNorm) and name in STATISTICS)
    ]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for module, name, buffer, before, version in buffers:
                module._buffers[name] = buffer
                if version is None or version != _version(buffer):
                    buffer.copy_(before)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version
