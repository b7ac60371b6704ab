"""Spark's own plan for the windowed count, as a reference point.

`from_json`, watermark, `groupBy(window, key).count()` in update mode, RocksDB state, JVM Kafka source and sink.
It is not the same thing: the Kafka sink is at least once, and lateness is decided for the whole query by the watermark
of the batch before, so late records are judged differently from Kafka Streams.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_FIELDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime BIGINT, extra STRING"
_STREAMING = "spark.sql.streaming"


def session(options: dict[str, str], extra: Mapping[str, str] | None = None) -> SparkSession:
    """Local cores and RocksDB state, tuned as far as the reference notes know how; `extra` settings win."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = Path(options["folder"]) / "scratch"
    config = {
        "spark.jars": options["jars"],
        "spark.driver.memory": options["heap"],
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": options["cores"],
        "spark.sql.session.timeZone": "UTC",
        f"{_STREAMING}.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STREAMING}.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        f"{_STREAMING}.noDataMicroBatches.enabled": "false",
        f"{_STREAMING}.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        **(extra or {}),
    }
    builder = SparkSession.builder.appName("spark-native").master(f"local[{options['cores']}]")
    for key, value in config.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(options: dict[str, str]) -> None:
    """Runs the count until it is ended from outside."""
    spark = session(options)
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options["bootstrap"])
        .option("subscribe", options["input"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options["max_records"])
        .load()
    )
    bid = F.from_json(F.col("value").cast("string"), _FIELDS)
    counts = (
        source.select(F.col("key").cast("string").alias("key"), "timestamp", bid.alias("bid"))
        .withWatermark("timestamp", "5 seconds")
        .groupBy(F.window("timestamp", "10 seconds"), "key")
        .count()
    )
    rows = counts.select(
        F.concat_ws("@", "key", F.unix_millis(F.col("window.start")).cast("string")).alias("key"),
        F.col("count").cast("string").alias("value"),
    )
    (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", options["bootstrap"])
        .option("topic", options["output"])
        .option("checkpointLocation", str(Path(options["folder"]) / "checkpoint"))
        .outputMode("update")
        .trigger(processingTime=f"{options['trigger_ms']} milliseconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=dict[str, str]))
