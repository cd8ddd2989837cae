"""Commands of the shell, with their options."""
