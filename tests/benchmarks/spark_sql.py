"""The results of `jobs/orders.py` as a plain Spark SQL batch job: Kafka to Delta, no Python per record.

What a colleague would write after a bug: `from_json`, a join with the users, `groupBy(window, key)`. It is no
peer, it answers another question. Each order is joined with the last version of its user, whatever came first; no
record is late; malformed records vanish. There are no dead letters, no changelog, nothing to go on from, and nothing
that says which rows would differ or takes them back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.benchmarks.spark_native import session

READY, DONE = "ready", "done"
"""Files that say how far it is: the session is up, all tables are written."""
_ORDER = (
    "order_id STRING, user_id STRING, amount DECIMAL(18, 2), type STRING, item STRING, location STRING, "
    "event_time TIMESTAMP"
)
_USER = "user_id STRING, name STRING, country STRING"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def main(options: dict[str, str]) -> None:
    """Writes the tables once."""
    folder = Path(options["folder"])
    spark = session(options, _DELTA)
    (folder / READY).touch()

    def table(name: str, rows: DataFrame) -> DataFrame:
        path = str(folder / "tables" / name)
        rows.write.format("delta").mode("overwrite").save(path)
        return spark.read.format("delta").load(path)

    users = table("users", _users(_topic(spark, options, "user-data")))
    enriched = table("enriched_orders", _enriched(_topic(spark, options, "raw-orders"), users))
    count, total = F.count("*").alias("orders"), F.sum("amount").alias("revenue")
    table("order_counts", _windows(enriched, F.window("timestamp", "1 hour"), "user_key", count))
    table("user_revenue", _windows(enriched, F.window("timestamp", "5 minutes", "1 minute"), "user_key", total))
    table("user_sessions", _windows(enriched, F.session_window("timestamp", "30 minutes"), "user_id", count))
    (folder / DONE).touch()
    spark.stop()


def _topic(spark: SparkSession, options: dict[str, str], name: str) -> DataFrame:
    """All records up to those offsets that were given."""
    ends = msgspec.json.decode(options["end_offsets"])
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", options["bootstrap"])
    source = source.option("subscribe", name).option("startingOffsets", "earliest")
    return source.option("endingOffsets", msgspec.json.encode({name: ends[name]}).decode()).load()


def _users(records: DataFrame) -> DataFrame:
    """Those that are not deleted, as the last record says."""
    text = F.col("value").cast("string")
    found = records.where("key IS NOT NULL").select(
        F.col("key").cast("string").alias("user_id"), "offset", F.from_json(text, _USER).alias("user"), "value"
    )
    valid = found.where("value IS NULL OR (user.user_id IS NOT NULL AND user.name IS NOT NULL)")
    last = valid.groupBy("user_id").agg(F.max_by("user", "offset").alias("user"))
    return last.where("user IS NOT NULL").select("user_id", "user.name", "user.country")


def _enriched(records: DataFrame, users: DataFrame) -> DataFrame:
    parsed = records.select(
        F.col("key").cast("string").alias("user_key"),
        F.from_json(F.col("value").cast("string"), _ORDER).alias("order"),
        "timestamp",
        F.col("partition").alias("source_partition"),
        F.col("offset").alias("source_offset"),
    )
    valid = (
        "user_key IS NOT NULL AND amount > 0 AND type IN ('PREMIUM', 'STANDARD') AND item IS NOT NULL "
        "AND order_id IS NOT NULL AND user_id IS NOT NULL AND event_time IS NOT NULL AND location LIKE '%/%'"
    )
    orders = parsed.select("user_key", "order.*", "timestamp", "source_partition", "source_offset").where(valid)
    names = users.select(
        F.col("user_id").alias("user_key"), F.col("name").alias("user_name"), F.col("country").alias("user_country")
    )
    place = F.split("location", "/", 2)
    return (
        orders.join(F.broadcast(names), "user_key")
        .withColumn("country", place.getItem(0))
        .withColumn("city", place.getItem(1))
    )


def _windows(enriched: DataFrame, window: Column, key: str, result: Column) -> DataFrame:
    grouped = enriched.groupBy(F.col(key).alias("user_id"), window.alias("window"))
    return (
        grouped.agg(result, F.max("timestamp").alias("timestamp"))
        .select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            F.to_date("window.start").alias("window_date"),
            "*",
        )
        .drop("window")
    )


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=dict[str, str]))
