"""What forwards and taking rows back cost on this machine, and how often drafts come through: a profile."""
