"""Runs the tasks of a topology for any engine that calls it: Spark, or a test in one process. Imports no engine.

- `task_loop`: how tasks take turns in a micro-batch; `shard`: one batch of the tasks of one shard, exactly once
- `worker`: what a process keeps from batch to batch; `messages`: what flows between tasks and the driver
- `consumer`, `history`: records from Kafka, and from the archive if Kafka has removed them; `global_tables`
- `collector`: what tasks send and write
- `state`: local stores, changelog, recovery, the stores that a checkpoint begins with
- `batches`: how much a batch takes, and how often there is one
- `replay`: runs recorded batches again
"""
