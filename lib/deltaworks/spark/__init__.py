"""The streaming host: a pipeline as one Structured Streaming query; the only importer of Spark."""
