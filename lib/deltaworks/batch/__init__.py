"""Batch jobs: tables that Spark computes day by day from the tables of pipelines, at a consistent cut.

- `job`: `BatchJob`, which a file in `jobs/batch/` defines
- `jobs`: finds them
- `definition`: the table of a job
- `history`: what the history of its table says
- `running`: runs one for some days
- `delta_tables`: Delta tables in Spark
"""

from deltaworks.batch.job import BatchJob

__all__ = ["BatchJob"]
