"""Two tokenizers and what they have in common: how a drafter of another vocabulary reads the text and writes drafts."""
