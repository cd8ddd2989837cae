"""Loading weights: where they are found, how they are read, what is refused and what is adjusted."""
