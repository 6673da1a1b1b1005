"""What stands beside weights that cannot be rewritten."""
