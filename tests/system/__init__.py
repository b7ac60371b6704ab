"""Whole streams under faults: each folder is a check of its own, `make check-*` or `make soak`.

`make test` runs short forms of most. `data_defects` needs no stack, only the tables that a job has written.
"""
