"""The gap between draft-length rules and the oracle, as a folder: tables, a plot and the seconds of every answer."""
