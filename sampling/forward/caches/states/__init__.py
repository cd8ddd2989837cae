"""Recurrent states of a text, which cannot forget a token: kept before drafts, and taken back."""
