"""Finding the temperatures of the affine family."""
