"""Networks watched while they run: who made which tensor, what enters which layer."""
