"""Drafters without a model: what the text so far says about what comes next."""
