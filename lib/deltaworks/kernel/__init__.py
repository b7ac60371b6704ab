"""The semantics: what every operator does, one record at a time.

No engine and no I/O; hosts feed it and keep its results. `task.py` is the entry point: a task is one copy of a stage.

- `order.py`: which record comes next. `processors/`: what each node does. `stores/`: their memory.
- `context.py`: what the processors of a task share, including the handling of failures (`errors.py`).
- `punctuation.py`, `idling.py`, `task_times.py`: time. `migration.py`: stores whose types have changed.
- `records.py`, `change.py`: the records in, out and between. `partitioning.py`, `exchanges.py`: their target tasks.
"""
