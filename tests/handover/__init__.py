"""Prompts that are read apart from decoding: states, files, sockets, plans that share them."""
