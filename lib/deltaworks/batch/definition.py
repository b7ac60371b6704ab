"""The Delta table of a batch job: its columns, and what they mean. Needs no Spark."""

from __future__ import annotations

import pyarrow as pa

from deltaworks.batch.job import DAY, BatchJob
from deltaworks.lakehouse import descriptions
from deltaworks.lakehouse.columns import arrow_column
from deltaworks.lakehouse.described import Definition
from deltaworks.lakehouse.schema import commented

KIND = "batch"
"""The kind of these tables, see `descriptions.KIND`."""


def definition(job: BatchJob) -> Definition:
    """The table that a job writes."""
    others = ", ".join(column for column in job.key if column != DAY)
    columns = pa.schema([(column.name, arrow_column(column).type) for column in job.columns])
    return Definition(
        name=job.name,
        description=job.doc,
        columns=commented(columns, job.comments),
        properties=descriptions.properties(
            kind=KIND,
            grain=f"a {DAY}" + (f" and {others}" if others else ""),
            key=job.key,
            note="The rows of a day change when the job is run for it again, all of them in one commit; late records "
            "do not run it.",
            as_of="The last run. The rows of each day are as of the run that computed it, which the history of the "
            "table names.",
            example=f"SELECT * FROM {job.name} ORDER BY {DAY} DESC LIMIT 10",
        ),
        partitioned_by=(DAY,),
    )
