"""The semantics: what every operator does, one record at a time.

No engine and no I/O; hosts feed it and keep what it returns. `task.py` is the way in.
"""
