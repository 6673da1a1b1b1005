"""What noise does to weights."""
