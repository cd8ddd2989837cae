"""Texts, engines' rows and pairs of the command acceptance."""
