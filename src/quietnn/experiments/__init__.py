"""Experiments: a frozen configuration whose `run()` yields flat records."""
