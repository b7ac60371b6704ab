"""The replay host: recorded micro-batches, run again by the same kernel as a batch job, into staging tables."""
