"""The immutable plan: nodes, windows, stages, checks, descriptions."""
