"""Protobuf: its descriptors, values of Python types in its bytes, and which message reads what."""
