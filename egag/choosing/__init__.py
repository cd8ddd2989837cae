"""Choices among several drafters."""
