"""How drafts are verified: `verify`, the strategies that it asks, and the graph that one round of it can be."""
