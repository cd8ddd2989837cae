"""Rules that stop a round by what its drafts look like."""
