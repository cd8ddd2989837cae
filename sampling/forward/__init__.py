"""Weights to logits: caches, runners and the forwards of the model families."""
