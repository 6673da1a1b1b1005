"""What undoes noise: one file a method, one table of them all."""
