"""Spark as the engine of a replay: task chunks as the tasks of a job, and history sorted by time."""
