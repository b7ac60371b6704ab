"""Debezium: what its records are, the values of columns in them, and the keys of rows."""
