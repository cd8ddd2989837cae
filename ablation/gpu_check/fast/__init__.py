"""The stage `fast`: what the card gives and what our loop makes of it, at the beginning of a text and far from it."""
