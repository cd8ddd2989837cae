"""The engine: one decode loop, drafters that propose, verifiers that judge, a cache that rolls back."""
