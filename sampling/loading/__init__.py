"""How weights get in: where they lie, how they are read, what is refused and what is mended."""
