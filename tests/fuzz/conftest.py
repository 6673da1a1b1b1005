"""The fuzz is a program of its own, not a test module."""

collect_ignore = ["fuzz.py", "kinds.py"]
