"""One self-contained page for one or more runs: what it says is computed here, how it looks is in `assets/`."""
