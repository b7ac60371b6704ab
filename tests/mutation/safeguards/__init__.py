"""Mutations that each take one safeguard of the product away, and the tests that must turn red."""
