"""Advice: which configuration a pair should draft with on a user's own prompts, and whether it should at all."""
