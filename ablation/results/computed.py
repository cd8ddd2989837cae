"""How configurations are named that were computed from a trace and never run."""

REPLAYED = "replayed: "
"""Another rule or length on recorded drafts."""

BOUND_METHOD = "bound"
"""Stands for a method in the rows of bounds."""

BOUND = f"{BOUND_METHOD}: "
"""What no rule is known to reach."""
