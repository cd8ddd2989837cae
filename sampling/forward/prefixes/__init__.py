"""Rows of texts that are kept for texts that begin in the same way."""
