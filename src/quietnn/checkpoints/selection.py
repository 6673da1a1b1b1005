"""Which tensors of a file are noisy: a rule on names and shapes that the user can see and override."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.weights import noisy_names_of_shapes


@dataclass(frozen=True)
class Selection:
    """The names of the noisy tensors and of those that pass through untouched."""

    noisy: tuple[str, ...]
    untouched: tuple[str, ...]


def ignore_selection(selection: Selection) -> None:
    """Show it to nobody."""


def select(
    shapes: Mapping[str, Sequence[int]],
    floating: Collection[str],
    *,
    noisy: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Selection:
    """Choose the noisy tensors: by the rule of `noisy_names_of_shapes`, or by patterns.

    Tensors that are empty or not floating point are never noisy.

    Args:
        shapes: the shape of every tensor, by name.
        floating: the names of those that are floating point.
        noisy: patterns (`*` and `?`) of the noisy names, instead of the rule.
        exclude: patterns of names that carry no noise after all.

    Raises:
        InvalidConfig: if a pattern fits no floating point tensor.
        InvalidWeights: if nothing is left that could be noisy.

    >>> select({"a.weight": (2, 2), "b.weight": (3, 3)}, ["a.weight", "b.weight"], exclude=["b.*"]).noisy
    ('a.weight',)
    """
    eligible = [name for name in shapes if name in floating]
    for pattern in (*noisy, *exclude):
        if not any(fnmatchcase(name, pattern) for name in eligible):
            raise InvalidConfig(
                f"no floating point tensor is called {pattern!r}; its tensors are {_some(eligible)}, "
                "quietnn inspect lists them all"
            )
    chosen = [name for name in eligible if _fits(name, noisy)] if noisy else noisy_names_of_shapes(shapes, floating)
    names = tuple(name for name in chosen if not _fits(name, exclude) and 0 not in shapes[name])
    if not names:
        raise InvalidWeights(
            f"there is no noisy tensor among {len(shapes)}; name some with --noisy 'PATTERN', or exclude fewer"
        )
    kept = set(names)
    return Selection(names, tuple(name for name in shapes if name not in kept))


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
