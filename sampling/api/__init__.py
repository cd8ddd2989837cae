"""Plain functions and processors for Python code."""
