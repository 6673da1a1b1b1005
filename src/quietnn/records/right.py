"""Which test examples a network has right, as text: four examples to a hexadecimal digit, the first one in front."""

from collections.abc import Sequence

_DIGIT = 4


def packed(right: Sequence[bool]) -> str:
    """The text of some answers; what is missing to a whole digit counts as wrong.

    >>> packed([True, False, False, True, True])
    '98'
    """
    digits = -(-len(right) // _DIGIT)
    bits = "".join("1" if one else "0" for one in right).ljust(digits * _DIGIT, "0")
    return f"{int(bits, 2):0{digits}x}"


def unpacked(text: str, num_examples: int) -> list[bool]:
    """The answers that `packed` wrote.

    Raises:
        ValueError: if the text is not that of so many answers.

    >>> unpacked("98", 5)
    [True, False, False, True, True]
    """
    digits = -(-num_examples // _DIGIT)
    if len(text) != digits or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"{num_examples} answers are {digits} hexadecimal digits")
    bits = f"{int(text, 16):0{digits * _DIGIT}b}" if digits else ""
    if "1" in bits[num_examples:]:
        raise ValueError(f"the text has an answer beyond the {num_examples} there are")
    return [bit == "1" for bit in bits[:num_examples]]
