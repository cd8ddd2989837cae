"""What scripts/benchmark.py plays, measures and writes."""
