"""Playing a plan: generations in turn, estimate, progress, into a file."""
