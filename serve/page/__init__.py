"""The page of a server: what it is told, and what it looks like."""
