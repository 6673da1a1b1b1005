"""The variance of the noise, estimated where nobody told it."""
