"""Spark as the engine of a replay: units as the tasks of a job, and history sorted by time."""
