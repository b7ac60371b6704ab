"""Calls of other systems from tasks: who asks, and where the answers are recorded."""
