"""Trained heads: modules that read the target's hidden states and draft what it will say."""
