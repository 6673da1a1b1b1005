"""The `quietnn` command: one file per verb, each a thin layer over a library function."""
