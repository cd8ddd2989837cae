"""Acceptance along given texts: the texts, figures a line each, and comparisons of two drafters or with an engine."""
