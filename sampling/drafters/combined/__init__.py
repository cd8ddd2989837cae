"""Drafters made of others: chosen by round, extended, joined, or in stages."""
