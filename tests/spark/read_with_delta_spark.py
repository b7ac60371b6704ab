"""Prints the rows of Delta tables as Spark reads them: `python -m tests.spark.read_with_delta_spark TABLE...`."""

from __future__ import annotations

import sys

from deltaworks.settings import Settings
from deltaworks.spark import session
from deltaworks.stack.jars import ensure_jars

if __name__ == "__main__":
    settings = Settings.from_environment()
    spark = session.build(
        "reader",
        cores=1,
        partitions=1,
        driver_memory="700m",
        scratch=settings.home / "scratch",
        python_path=settings.joined_python_path,
        extra={
            "spark.jars": ",".join(map(str, ensure_jars(settings, "spark"))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    )
    for path in sys.argv[1:]:
        for row in spark.read.format("delta").load(path).selectExpr("to_json(struct(*)) AS row").collect():
            print("ROW", row.row)
    spark.stop()
