"""The replay host: recorded micro-batches, run again by the same kernel as a batch job, into staging tables.

- `steps`: what is processed, a step per micro-batch; many steps make a chunk
- `reading`, `hops`: how the records get to a task, from topics and from other tasks
- `units`, `runner`: a chunk of one task, or of a circle of tasks: all of it happens or nothing
- `executors`: where units run
- `host`: chunk after chunk, committed and noted
"""
