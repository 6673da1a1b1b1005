"""What undoes the noise."""
