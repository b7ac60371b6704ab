"""Migrations of the registry's tables with Alembic, run by `registry.migrate`, never by hand.

For a new revision, change `control.registry_schema` and write `versions/v<number>_<what>.py`; a test finds gaps.
"""
