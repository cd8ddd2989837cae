"""Drafters that run a model: one file each."""
