"""What some inputs show where they arrive: from one batch, computed when it is asked for, or from many."""

from collections.abc import Iterable
from functools import cached_property, reduce

from torch import Tensor, nn

from quietnn.batches import logits_of
from quietnn.errors import InvalidConfig
from quietnn.watching.batch_moments import EntryMoments, ImageMoments, InputSum
from quietnn.watching.makers import STATISTICS
from quietnn.watching.moments import ChannelMoments, PatchMoments, concentration
from quietnn.watching.survey import BatchNorm, Run


class Arrival:
    """A tensor somewhere in a network, and the layer that made it, if that is known, with what it was given.

    `called` are the layers with parameters of their own that have been called so far, in order.
    """

    def __init__(self, run: Run, activations: Tensor) -> None:
        self.feeder, self._inputs = run.feeder(activations)
        self.called = run.called
        self._activations = activations

    @cached_property
    def patches(self) -> PatchMoments:
        """Of what the weights of the layer in front multiply."""
        return PatchMoments.of(self._front[0], self._entries)

    @cached_property
    def _entries(self) -> EntryMoments:
        return EntryMoments.of(self._front[1])

    @property
    def _front(self) -> tuple[nn.Module, Tensor]:
        assert self.feeder is not None
        assert self._inputs is not None
        return self.feeder.layer, self._inputs


class Visit(Arrival):
    """What enters a BatchNorm, whose clean statistics are still as the sender gave them.

    Of many batches only moments are kept: two numbers for each image and channel, two for each entry of what the layer
    in front is given, and the first images. They give what all images at once would give, up to rounding.

    >>> import torch
    >>> first, *others = torch.tensor([[[2.0]], [[1.0]], [[3.0]]])
    >>> visit = lambda images: Visit(Run(), "0", nn.BatchNorm1d(1), images)
    >>> visit(first).over(map(visit, others)).channels.mean.item()
    2.0
    """

    def __init__(self, run: Run, name: str, module: BatchNorm, activations: Tensor) -> None:
        super().__init__(run, activations)
        self.name, self.epsilon = name, module.eps
        self.mean, self.variance = (module.get_buffer(statistic).clone() for statistic in STATISTICS)

    def over(self, parts: Iterable["Visit"]) -> "Visit":
        """The same with the moments of batches; its own images are the first, which `concentration` looks at."""
        images: list[ImageMoments] = []
        entries, sums = None, None
        for part in parts:
            images.append(part._images)
            # Few large tables: many small ones between activations that come and go would pin freed memory.
            while len(images) > 1 and len(images[-1].means) >= len(images[-2].means):
                images[-2:] = [ImageMoments.joined(images[-2:])]
            if self.feeder is not None:
                entries = part._entries if entries is None else _checked(entries, part._entries).merged(part._entries)
                sums = part.input_sum if sums is None else sums.merged(part.input_sum)
        self._images = ImageMoments.joined(images)
        if entries is not None and sums is not None:
            self._entries, self.input_sum = entries, sums
        return self

    @property
    def num_images(self) -> int:
        """How many there are."""
        return len(self._images.means)

    @cached_property
    def channels(self) -> ChannelMoments:
        """Mean and variance of each channel."""
        return ChannelMoments.of(self._images, about=self.mean, epsilon=self.epsilon)

    @cached_property
    def concentration(self) -> float:
        """How concentrated what the layer in front is given is along its weights, by the first images."""
        return concentration(*self._front, self._activations, self.patches.variances)

    @cached_property
    def input_sum(self) -> InputSum:
        """How the channels go with the sum of what the layer in front is given."""
        return InputSum.of(*self._front, self._activations)

    @cached_property
    def _images(self) -> ImageMoments:
        return ImageMoments.of(self._activations, about=self.mean)


class HeadSample(Arrival):
    """What a network has returned, or the `logits` where it has some, (examples, classes)."""

    def __init__(self, run: Run, output: object) -> None:
        super().__init__(run, logits_of(output))

    @classmethod
    def merged(cls, parts: Iterable["HeadSample"]) -> "HeadSample":
        """One sample from those of batches; the last as it is, if no linear layer makes one output for each class.

        >>> import torch
        >>> layer, run = nn.Linear(3, 2), Run()
        >>> parts = [HeadSample(run, run.through(layer, part)) for part in torch.rand(5, 3).split(2)]
        >>> HeadSample.merged(iter(parts)).outputs.count
        5
        """
        return reduce(cls._plus, parts)

    def _plus(self, other: "HeadSample") -> "HeadSample":
        if isinstance(other.layer, nn.Linear) and len(other.shape) == 2:
            other.outputs = self.outputs.merged(other.outputs)
            other._entries = _checked(self._entries, other._entries).merged(other._entries)
        return other

    @property
    def layer(self) -> nn.Module | None:
        """The one that made it."""
        return self.feeder.layer if self.feeder else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the last batch."""
        return tuple(self._activations.shape)

    @cached_property
    def outputs(self) -> EntryMoments:
        """Mean and unbiased variance of the output of each class."""
        return EntryMoments.unbiased(self._activations)


def _checked(before: EntryMoments, after: EntryMoments) -> EntryMoments:
    """The former, if entries of both stand for the same."""
    if before.mean.shape != after.mean.shape:
        raise InvalidConfig(
            f"a layer is given {tuple(before.mean.shape)} by one batch and {tuple(after.mean.shape)} by another; "
            "bring all inputs to one size"
        )
    return before
