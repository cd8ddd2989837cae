"""Verification of drafts: `verify`, the verifiers that it calls, and a GPU graph of one round."""
