"""BatchNorm statistics between those that were sent and those of a batch, weighed by their own errors.

The stored statistics are exact for the clean weights; the batch knows the present ones but is small. For the means of
a layer's channels, `V` being the mean sampling variance of the batch means (from the spread between examples) and `T`
the mean squared distance between batch and stored means, both in stored standard deviations,

    mean = stored + g (batch - stored)        g = max(0, 1 - V / T)

is the empirical-Bayes estimate: what the sampling error explains is not followed. The logarithms of the variances are
treated likewise, their common part apart from the differences between channels. Gradients flow through the batch's
statistics, so steps are taken on the network as it will be used.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from quietnn.makers import Makers

_BATCH_NORM = nn.modules.batchnorm._BatchNorm
_TINY = 1e-12


class BlendedNorm(nn.Module):
    """Stands in for a BatchNorm layer; remembers the statistics of its last call."""

    def __init__(self, layer: "nn.modules.batchnorm._BatchNorm") -> None:
        super().__init__()
        self.layer = layer
        self.statistics: tuple[Tensor, Tensor] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise with the blended statistics; inputs are (batch, channels, ...)."""
        if len(inputs) < 2:
            return torch.as_tensor(self.layer(inputs))
        mean, variance = self._blend(inputs)
        self.statistics = mean.detach(), variance.detach()
        scale = torch.rsqrt(variance + self.layer.eps)
        shift = -mean * scale
        if self.layer.affine:
            scale, shift = scale * self.layer.weight, shift * self.layer.weight + self.layer.bias
        shape = (1, -1, *(1,) * (inputs.dim() - 2))
        return inputs * scale.view(shape) + shift.view(shape)

    def _blend(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        num_examples = len(inputs)
        values = inputs.flatten(2) if inputs.dim() > 2 else inputs[:, :, None]
        means = values.mean(2)
        mean = means.mean(0)
        squares = (values - mean[:, None]).square().mean(2)
        variance = squares.mean(0) + self.layer.eps
        stored_mean, stored_variance = self._stored()
        change = torch.log(variance) - torch.log(stored_variance)
        common = change.mean()
        with torch.no_grad():
            mean_error = (means.var(0) / num_examples / stored_variance).mean()
            mean_gain = _gain((mean - stored_mean).square().div(stored_variance).mean(), mean_error)
            error = (squares.var(0) / num_examples / variance.square()).mean()
            gain = _gain((change - common).square().mean(), error)
            common_gain = _gain(common.square(), error / len(change))
        log_variance = torch.log(stored_variance) + common_gain * common + gain * (change - common)
        return torch.lerp(stored_mean, mean, mean_gain), log_variance.exp() - self.layer.eps

    def _stored(self) -> tuple[Tensor, Tensor]:
        mean, variance = self.layer.running_mean, self.layer.running_var
        assert mean is not None
        assert variance is not None
        return mean, variance + self.layer.eps


def _gain(distance: Tensor, error: Tensor) -> Tensor:
    """How much of a squared distance is not explained by the sampling error."""
    return (1.0 - error / (distance + _TINY)).clamp(min=0.0)


def blend_statistics(network: nn.Module) -> dict[str, BlendedNorm]:
    """Put a `BlendedNorm` in the place of every BatchNorm with stored statistics, in place; return them by name.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    >>> list(blend_statistics(network))
    ['1']
    """
    blended: dict[int, BlendedNorm] = {}
    found: dict[str, BlendedNorm] = {}
    for name, parent, child, layer in list(_batch_norms(network)):
        found[name] = blended.setdefault(id(layer), BlendedNorm(layer))
        setattr(parent, child, found[name])
    return found


def _batch_norms(network: nn.Module) -> Iterator[tuple[str, nn.Module, str, "nn.modules.batchnorm._BatchNorm"]]:
    for prefix, parent in network.named_modules():
        for child, layer in parent.named_children():
            if isinstance(layer, _BATCH_NORM) and layer.running_mean is not None:
                yield f"{prefix}.{child}" if prefix else child, parent, child, layer


def scale_free(network: nn.Module, run: Callable[[], object]) -> frozenset[str]:
    """Names of the parameters whose layer feeds a `BlendedNorm` and nothing but that, so that their scale is undone.

    Args:
        network: with its `BlendedNorm` layers in place.
        run: calls the network once.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    >>> blended = blend_statistics(network)
    >>> sorted(scale_free(network, lambda: network(torch.rand(4, 2))))
    ['0.bias', '0.weight']
    """
    makers: Makers[nn.Module] = Makers()
    num_calls: Counter[nn.Module] = Counter()
    num_fed: Counter[nn.Module] = Counter()

    def at_layer(layer: nn.Module, _: object, output: object) -> None:
        num_calls[layer] += 1
        if isinstance(output, Tensor):
            makers.remember(output, layer)

    def at_norm(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        maker = makers.of(arguments[0])
        if maker is not None:
            num_fed[maker] += 1

    norms = [layer for layer in network.modules() if isinstance(layer, BlendedNorm)]
    inside = {norm.layer for norm in norms}
    layers = [layer for layer in network.modules() if layer not in inside and next(_own(layer), None) is not None]
    handles = [norm.register_forward_pre_hook(at_norm) for norm in norms]
    handles += [layer.register_forward_hook(at_layer) for layer in layers]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    # A parameter that some other layer shares keeps its scale there.
    keeping = [layer for layer in layers if num_fed[layer] != num_calls[layer] or not num_calls[layer]]
    kept = {id(tensor) for layer in (*keeping, *inside) for tensor in _own(layer)}
    named = network.named_parameters(remove_duplicate=False)
    return frozenset(name for name, tensor in named if id(tensor) not in kept)


def _own(layer: nn.Module) -> Iterator[nn.Parameter]:
    return layer.parameters(recurse=False)


@torch.no_grad()
def write_statistics(network: nn.Module, blended: dict[str, BlendedNorm]) -> None:
    """Give the BatchNorm layers of another copy of the network the statistics of the last call, in place."""
    layers = dict(network.named_modules(remove_duplicate=False))
    for name, source in blended.items():
        layer = layers[name]
        if source.statistics is not None and isinstance(layer, _BATCH_NORM):
            for buffer, value in zip((layer.running_mean, layer.running_var), source.statistics, strict=True):
                if buffer is not None:
                    buffer.copy_(value)
