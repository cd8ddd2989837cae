"""Drafters whose model has another tokenizer."""
