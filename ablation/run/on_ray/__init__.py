"""A plan on a Ray cluster: a player on each device, and one process that hands parts out and writes what comes back."""
