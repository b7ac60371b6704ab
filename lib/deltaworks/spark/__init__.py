"""Spark as the engine: a pipeline as one Structured Streaming query. Only this package imports Spark."""
