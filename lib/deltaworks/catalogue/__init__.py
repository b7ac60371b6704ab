"""Describes all tables of a home, for those who look for one.

- `entries`: gathers it from the tables, the pipelines' heartbeats and the history of checks
- `quality_tables`: the tables with the history of checks
- `verdicts`: the last check of each table
- `table`: the Delta table `catalog`, which has it for readers of every engine

What a table says of itself is in `lakehouse/described.py`.
"""
