"""A server of another engine: how it is started, asked, and ended."""
