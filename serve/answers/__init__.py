"""From texts as they are written to the objects that clients read."""
