"""The `quietnn` command: one file for each group of verbs, each verb a thin layer over a library function."""
