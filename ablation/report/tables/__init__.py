"""The tables of a report, as frames and as text."""
