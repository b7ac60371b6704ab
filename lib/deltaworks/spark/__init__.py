"""Spark as the engine: a pipeline as one Structured Streaming query. The only importer of Spark."""
