"""Placeholder, replaced below."""


def theory() -> None:
    """Check the paper's two theorems."""
