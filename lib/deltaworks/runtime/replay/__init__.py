"""Recorded micro-batches, run again by the same kernel, into staging tables.

- `steps`: what is processed, a step per micro-batch; many steps make a chunk
- `reading`, `exchanges`: how the records get to a task, from topics and from other tasks
- `task_chunks`, `runner`: a chunk of one task, or of a cycle of tasks: all of it happens or nothing
- `executors`: where task chunks run
- `host`: chunk after chunk, committed and noted

What decides what is replayed, and what becomes of it, is `deltaworks.replay`.
"""
