"""Prompts that were read elsewhere: their states as bytes, in files, and over a socket."""
