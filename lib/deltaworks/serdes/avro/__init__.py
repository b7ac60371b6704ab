"""Avro: its schemas as data, values of Python types in its bytes, and which schema reads what."""
