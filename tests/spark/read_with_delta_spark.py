"""Prints the rows of Delta tables as Spark reads them: `python -m tests.spark.read_with_delta_spark TABLE...`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from deltaworks.settings import Settings
from deltaworks.stack.jars import ensure_jars

if __name__ == "__main__":
    jars = ensure_jars(Settings.from_environment(), "spark")
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    for path in sys.argv[1:]:
        for row in spark.read.format("delta").load(path).selectExpr("to_json(struct(*)) AS row").collect():
            print("ROW", row.row)
    spark.stop()
