"""Acceptance along given texts: what a drafter would meet at every place, whatever the draft length."""
