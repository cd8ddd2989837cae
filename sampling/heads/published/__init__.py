"""Heads in the formats that others publish, read as they are: a reader a format, chosen by its config.json."""
