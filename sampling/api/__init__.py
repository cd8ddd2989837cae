"""Plain functions for Python code, and decoding methods for transformers."""
