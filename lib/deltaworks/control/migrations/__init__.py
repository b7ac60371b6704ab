"""How the registry's tables came to be: Alembic, run by `registry.migrate`, never by hand.

A new revision: change `control.tables`, write `versions/v<number>_<what>.py`; a test says what is missing in it.
"""
