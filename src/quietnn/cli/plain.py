"""Words of strangers on the terminal: names in files may hold anything, and a terminal obeys some of it."""

from rich.markup import escape


def plain(text: str) -> str:
    r"""The text without commands to the terminal, written with backslashes instead.

    >>> plain("red\x1b[31m")
    'red\\x1b[31m'
    """
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def plain_markup(text: str) -> str:
    """The same for a console that reads markup: brackets are letters."""
    return escape(plain(text))
