"""The stage `probe`: which line breaks on this card, in a minute."""
