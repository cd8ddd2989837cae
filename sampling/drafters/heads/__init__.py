"""Drafters with heads over the states of the target."""
