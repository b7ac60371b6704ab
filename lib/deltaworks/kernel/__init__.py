"""The semantics: what every operator does, one record at a time.

No engine and no I/O; hosts feed it and keep what it returns. `task.py` is the way in: a task is one copy of a stage.

- `order.py`: which record comes next. `processors/`: what each node does. `stores/`: what they remember.
- `context.py`: what the processors of a task share, the handling of failures included (`errors.py`).
- `punctuation.py`, `idling.py`, `task_times.py`: time. `migration.py`: stores whose types have changed.
- `records.py`, `change.py`: what goes in, out and between. `partitioning.py`, `exchanges.py`: to which task it goes.
"""
