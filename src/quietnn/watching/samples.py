"""What some inputs show of a layer: from one batch, where nothing is computed before it is asked for, or from many."""

from collections.abc import Iterable
from functools import cached_property, reduce

from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.watching.batch_moments import EntryMoments, ImageMoments, InputSum
from quietnn.watching.moments import ChannelMoments, PatchMoments, concentration


class Sample:
    """What enters a BatchNorm, and what the layer in front of it was given.

    Of many batches only moments are kept: two numbers for each image and channel, two for each entry of what the layer
    in front is given, and the first images. They give what all images at once would give, up to rounding. `about` is a
    value near each channel's mean; the layer in front, and what it was given, may be unknown.

    >>> import torch
    >>> parts = [Sample(part, about=torch.zeros(1), epsilon=0.0) for part in torch.tensor([[[1.0]], [[3.0]]])]
    >>> Sample.merged(parts[0], iter(parts)).channels.mean.item()
    2.0
    """

    def __init__(
        self,
        activations: Tensor,
        *,
        about: Tensor,
        epsilon: float,
        layer: nn.Module | None = None,
        inputs: Tensor | None = None,
    ) -> None:
        self._activations = activations
        self._about, self._epsilon = about, epsilon
        self._layer, self._inputs = layer, inputs

    @classmethod
    def merged(cls, first: "Sample", parts: Iterable["Sample"]) -> "Sample":
        """One sample from those of batches; `first` is that of the first images, which `concentration` looks at."""
        images: list[ImageMoments] = []
        entries, sums = None, None
        for part in parts:
            images.append(part._images)
            # Few large tables: many small ones between activations that come and go would pin freed memory.
            while len(images) > 1 and len(images[-1].means) >= len(images[-2].means):
                images[-2:] = [ImageMoments.joined(images[-2:])]
            if first._layer is not None:
                entries = part._entries if entries is None else _checked(entries, part._entries).merged(part._entries)
                sums = part.input_sum if sums is None else sums.merged(part.input_sum)
        whole = cls(
            first._activations, about=first._about, epsilon=first._epsilon, layer=first._layer, inputs=first._inputs
        )
        whole._images = ImageMoments.joined(images)
        if entries is not None and sums is not None:
            whole._entries, whole.input_sum = entries, sums
        return whole

    @property
    def num_images(self) -> int:
        """How many there are."""
        return len(self._images.means)

    @cached_property
    def channels(self) -> ChannelMoments:
        """Mean and variance of each channel."""
        return ChannelMoments.of(self._images, about=self._about, epsilon=self._epsilon)

    @cached_property
    def patches(self) -> PatchMoments:
        """Of what the weights of the layer in front multiply."""
        return PatchMoments.of(self._front[0], self._entries)

    @cached_property
    def concentration(self) -> float:
        """How concentrated these are along the weights, by the first images."""
        return concentration(*self._front, self._activations, self.patches.variances)

    @cached_property
    def input_sum(self) -> InputSum:
        """How the channels go with the sum of what the layer in front is given."""
        return InputSum.of(*self._front, self._activations)

    @cached_property
    def _images(self) -> ImageMoments:
        return ImageMoments.of(self._activations, about=self._about)

    @cached_property
    def _entries(self) -> EntryMoments:
        return EntryMoments.of(self._front[1])

    @property
    def _front(self) -> tuple[nn.Module, Tensor]:
        assert self._layer is not None
        assert self._inputs is not None
        return self._layer, self._inputs


class HeadSample:
    """What comes out of a network, (examples, classes), and the layer that made it with its inputs, if known."""

    def __init__(self, outputs: Tensor, *, layer: nn.Module | None = None, inputs: Tensor | None = None) -> None:
        self.layer, self._inputs = layer, inputs
        self.shape = tuple(outputs.shape)
        self._outputs = outputs

    @classmethod
    def merged(cls, parts: Iterable["HeadSample"]) -> "HeadSample":
        """One sample from those of batches; the last as it is, if no linear layer makes one output for each class.

        >>> import torch
        >>> layer, inputs = nn.Linear(3, 2), torch.rand(5, 3)
        >>> parts = [HeadSample(layer(part), layer=layer, inputs=part) for part in inputs.split(2)]
        >>> HeadSample.merged(iter(parts)).outputs.count
        5
        """
        return reduce(cls._plus, parts)

    def _plus(self, other: "HeadSample") -> "HeadSample":
        if isinstance(other.layer, nn.Linear) and len(other.shape) == 2:
            other.outputs = self.outputs.merged(other.outputs)
            other._entries = _checked(self._entries, other._entries).merged(other._entries)
        return other

    @cached_property
    def outputs(self) -> EntryMoments:
        """Mean and unbiased variance of the output of each class."""
        return EntryMoments.unbiased(self._outputs)

    @cached_property
    def patches(self) -> PatchMoments:
        """Of what the weights of the last layer multiply."""
        assert self.layer is not None
        return PatchMoments.of(self.layer, self._entries)

    @cached_property
    def _entries(self) -> EntryMoments:
        assert self._inputs is not None
        return EntryMoments.of(self._inputs)


def _checked(before: EntryMoments, after: EntryMoments) -> EntryMoments:
    """The former, if entries of both stand for the same."""
    if before.mean.shape != after.mean.shape:
        raise InvalidConfig(
            f"a layer is given {tuple(before.mean.shape)} by one batch and {tuple(after.mean.shape)} by another; "
            "bring all inputs to one size"
        )
    return before
