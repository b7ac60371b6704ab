"""The DSL."""
