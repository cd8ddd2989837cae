"""Prompts of many kinds to train drafters on, put together from words, forms and passages by a seeded chance."""
