"""The texts of a batch: what is asked, what a forward reads of their prompts, and whether memory has room."""
