"""Runs that leave records: one-shot runs and grids of them."""
