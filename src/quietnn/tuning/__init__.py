"""Finding the temperatures from a score or a loss."""
