"""A small stateful query, to see what Spark makes of a checkpoint; needs no Kafka: `python -m ... HOME`.

Each line of input is a request (`Run`), each line of output that begins with `ANSWER ` what came of it (`Answer`). Two
operators with two partitions each, as a pipeline of two stages has. Batch n reads the numbers from 10 n to 10 n + 9;
the answer has the sums that the state of each operator holds after it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

from deltaworks.spark import session

PER_BATCH = 10
SCHEMA = "route int, number long, first long, second long"


class Run(msgspec.Struct, frozen=True):
    """Runs batches until the numbers below `batches * PER_BATCH` have been read."""

    checkpoint: str
    batches: int
    plus: int = 0
    """Added to each number that is read."""


class Answer(msgspec.Struct, frozen=True):
    """What the batches of a run had as a result: per batch the sums of both operators over both routes."""

    sums: dict[int, tuple[int, int]] = {}
    error: str | None = None


def expected(batch: int) -> tuple[int, int]:
    """The sums after a batch."""
    numbers = range(PER_BATCH * (batch + 1))
    return sum(numbers), sum(numbers)


class NumbersReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, until: int, plus: int) -> None:
        self._until = until
        self._plus = plus

    def initialOffset(self) -> dict[str, dict[str, int]]:
        return {"numbers": {"0": 0}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:
        at = start["numbers"]["0"]
        return {"numbers": {"0": max(at, min(at + PER_BATCH, self._until))}}

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        return [InputPartition((start["numbers"]["0"], end["numbers"]["0"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int, int]]:
        for number in range(*partition.value):
            yield number % 2, number + self._plus, 0, 0


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> NumbersReader:
        return NumbersReader(int(self.options["until"]), int(self.options["plus"]))


class Sums(StatefulProcessor):
    """Adds up the numbers of a route, and writes the sum into a column."""

    def __init__(self, column: str) -> None:
        self._column = column

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = handle.getValueState("sum", "sum long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        found = self._sum.get() if self._sum.exists() else None
        total = 0 if found is None else int(found[0])
        for row in sorted(rows, key=lambda each: int(each.number)):
            total += int(row.number)
            yield Row(**(row.asDict() | {self._column: total}))
        self._sum.update((total,))

    def close(self) -> None:
        pass


def serve(home: Path) -> None:
    spark = session.build(
        "checkpoints", cores=2, partitions=2, driver_memory="768m", scratch=home / "scratch",
        python_path=":".join(sys.path),
        extra={
            "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        },
    )  # fmt: skip
    spark.dataSource.register(Numbers)
    print("ANSWER " + msgspec.json.encode(Answer()).decode(), flush=True)
    for line in sys.stdin:
        request = msgspec.json.decode(line, type=Run)
        print("ANSWER " + msgspec.json.encode(_run(spark, request)).decode(), flush=True)
    spark.stop()


def _run(spark: SparkSession, request: Run) -> Answer:
    sums: dict[int, tuple[int, int]] = {}

    def collect(frame: DataFrame, batch: int) -> None:
        last: dict[int, tuple[int, int]] = {}
        for row in sorted(frame.collect(), key=lambda each: int(each.number)):
            last[int(row.route)] = (int(row.first), int(row.second))
        sums[batch] = (sum(each[0] for each in last.values()), sum(each[1] for each in last.values()))

    options = {"until": str(request.batches * PER_BATCH), "plus": str(request.plus)}
    frame = spark.readStream.format("numbers").options(**options).load()
    for column in ("first", "second"):
        frame = frame.groupBy("route").transformWithState(Sums(column), SCHEMA, "Update", "None")
    writer = frame.writeStream.outputMode("update").option("checkpointLocation", request.checkpoint)
    try:
        query = writer.foreachBatch(collect).trigger(availableNow=True).start()
        query.awaitTermination()
        return Answer(sums)
    except Exception as error:  # whatever Spark says is the answer
        return Answer(sums, str(error))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
