"""quietnn repairs neural networks whose weights arrived with noise on them."""
