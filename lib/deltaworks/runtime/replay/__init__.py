"""Runs recorded micro-batches again with the same kernel, into staging tables.

- `steps`: what is processed, one step per micro-batch; many steps make a chunk
- `reading`, `exchanges`: how records reach a task, from topics and from other tasks
- `task_chunks`, `runner`: a chunk of one task, or of a cycle of tasks: all of it happens or nothing
- `executors`: where task chunks run
- `host`: runs chunk after chunk, commits and notes each

`deltaworks.replay` decides what is replayed, and what becomes of it.
"""
