"""Draft-length rules, which decide how many tokens to draft: one file per rule."""
