"""Which tensors of a file are noisy: a rule on names and shapes that the user can see and override."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.targets import some_of
from quietnn.weights import noisy_names_of_shapes


@dataclass(frozen=True)
class Selection:
    """The names of the noisy tensors and of those that pass through untouched."""

    noisy: tuple[str, ...]
    untouched: tuple[str, ...]


def select(
    shapes: Mapping[str, Sequence[int]],
    floating: Collection[str],
    *,
    noisy: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Selection:
    """Choose the noisy tensors: by the rule of `noisy_names_of_shapes`, or by patterns.

    A pattern is a name itself, or has `*` and `?` for what may differ. Tensors that are empty or not floating point are
    never noisy.

    >>> select({"a.weight": (2, 2), "b.weight": (3, 3)}, ["a.weight", "b.weight"], exclude=["b.*"]).noisy
    ('a.weight',)
    """
    eligible = {name: None for name in shapes if name in floating}
    wanted, unwanted = _fitting(eligible, noisy), _fitting(eligible, exclude)
    chosen = [name for name in eligible if name in wanted] if noisy else noisy_names_of_shapes(shapes, floating)
    names = tuple(name for name in chosen if name not in unwanted and 0 not in shapes[name])
    if not names:
        raise InvalidWeights(
            f"there is no noisy tensor among {len(shapes)}; name some with --noisy 'PATTERN', or exclude fewer"
        )
    kept = set(names)
    return Selection(names, tuple(name for name in shapes if name not in kept))


def _fitting(names: Collection[str], patterns: Sequence[str]) -> set[str]:
    """The names that fit any of the patterns, each of which must fit one; a pattern that is a name means that alone."""
    fitting: set[str] = set()
    for pattern in patterns:
        found = {pattern} if pattern in names else set(filter(_wildcard(pattern).fullmatch, names))
        if not found:
            raise InvalidConfig(
                f"no floating point tensor is called {pattern!r}; its tensors are {some_of(names)}, "
                "quietnn inspect lists them all"
            )
        fitting |= found
    return fitting


def _wildcard(pattern: str) -> re.Pattern[str]:
    """`*` stands for any text, `?` for one character, all else for itself."""
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
