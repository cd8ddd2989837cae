"""Rules that adapt the draft length to how many drafts were accepted."""
