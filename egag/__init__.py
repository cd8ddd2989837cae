"""Who decides how many tokens to draft: one file a rule."""
