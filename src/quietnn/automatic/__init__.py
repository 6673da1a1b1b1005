"""One call that picks and combines the methods by what the user has."""
