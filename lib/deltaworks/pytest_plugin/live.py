"""The real thing in a test: a Kafka broker, a pipeline on Spark, and its Delta tables.

The fixtures `kafka`, `stream` and `tables` of the pytest plugin give them to a test. The broker is started once
(`brokers`); each test has topics, a checkpoint and tables of its own.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deltaworks import clock
from deltaworks.errors import DeltaworksError
from deltaworks.kafka.ranges import Range
from deltaworks.serdes.base import Serde
from deltaworks.testing.sample_data import SampleRecord, produce
from deltaworks.testing.topics import TestRecord
from deltaworks.testing.typed import topic_serde

if TYPE_CHECKING:
    from deltaworks.dsl.pipeline import Pipeline
    from deltaworks.settings import Settings

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
_LINES = 25
_OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class _Kind(Enum):
    GIVEN = "records of a test"


class LiveKafka:
    """The topics of a real broker.

    Args:
        settings: say where it is.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def bootstrap(self) -> str:
        """Its address, for clients of your own."""
        return self.settings.bootstrap

    def produce(
        self,
        topic: str,
        records: Iterable[tuple[Any, Any] | tuple[Any, Any, int]],
        *,
        key: Any = None,
        value: Any = None,
        partitions: int = 4,
    ) -> None:
        """Writes records, in order, and waits until they are there.

        Args:
            topic: Their topic, which is created if it does not exist.
            records: Key, value and, if it matters, the timestamp in milliseconds.
            key: Type or serde of the keys; None: that of each key.
            value: Type or serde of the values; None: that of each value.
            partitions: Of a new topic.

        Raises:
            KafkaTopicError: We may not write to the topic.
            KafkaWriteError: A record was not acknowledged.
        """
        from deltaworks.kafka.admin import TopicSpec, create_topics, partition_counts

        if topic not in partition_counts(self.settings.cluster):
            create_topics(self.settings.cluster, [TopicSpec(name=topic, partitions=partitions)])
        now_ms = clock.wall_ms()
        sample = (
            SampleRecord(
                topic,
                None,
                _encoded(record[0], key, topic, "key"),
                _encoded(record[1], value, topic, "value"),
                record[2] if len(record) == 3 else now_ms,
                _Kind.GIVEN,
            )
            for record in records
        )
        produce(self.settings.cluster, sample)

    def read(self, topic: str, *, key: type[K] | Serde[K], value: type[V] | Serde[V]) -> list[TestRecord[K, V]]:
        """All committed records of a topic, by partition and offset.

        Args:
            topic: Its name.
            key: Type or serde of the keys.
            value: Type or serde of the values.
        """
        from deltaworks.kafka.admin import begin_offsets, end_offsets
        from deltaworks.runtime.consumer import RangeReader

        key_serde: Serde[K] = topic_serde(key, None, topic, "key")
        value_serde: Serde[V] = topic_serde(value, None, topic, "value")
        begins, ends = (offsets(self.settings.cluster, [topic]) for offsets in (begin_offsets, end_offsets))
        found: list[TestRecord[K, V]] = []
        with closing(RangeReader(self.settings.cluster)) as reader:
            for at, end in sorted(ends.items()):
                for batch in (batch for batches in reader.read([Range(*at, begins[at], end)]) for batch in batches):
                    headers = batch.headers_of_each
                    found += (
                        TestRecord(_decoded(k, key_serde), _decoded(v, value_serde), at_ms, of_record)
                        for k, v, at_ms, of_record in zip(
                            batch.keys, batch.values, batch.timestamps_ms, headers, strict=True
                        )
                    )
        return found

    def delete_topics(self) -> None:
        """Deletes all topics, those of pipelines included, so that the next test begins from nothing."""
        from deltaworks.kafka.admin import admin, delete_topics, partition_counts_of

        there = partition_counts_of(admin(self.settings.cluster))
        delete_topics(self.settings.cluster, [topic for topic in there if topic not in _OF_KAFKA])


class LiveStreams:
    """Runs pipelines on Spark, in processes of their own: `stream(pipeline)`.

    Args:
        settings: say where Kafka is, and the home of checkpoints and tables.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, pipeline: Pipeline) -> None:
        """Processes what the topics hold now, and returns when it is committed. A further call goes on from there.

        Raises:
            StreamEndedError: The driver failed; the message has the end of its log.
        """
        from deltaworks.spark.sending import dumped

        home = self._settings.home
        home.mkdir(parents=True, exist_ok=True)
        file, log = home / f"{pipeline.name}.pickle", home / f"{pipeline.name}.log"
        file.write_bytes(dumped(pipeline))
        with log.open("ab") as out:
            done = subprocess.run(
                [sys.executable, "-m", "deltaworks.pytest_plugin.live", str(file)],
                cwd=self._settings.project,
                env=self._settings.process_environment(),
                stdout=out,
                stderr=out,
                check=False,
            )
        if done.returncode != 0:
            lines = log.read_text(errors="replace").splitlines()[-_LINES:]
            raise StreamEndedError(
                f"The pipeline '{pipeline.name}' ended with exit code {done.returncode}:\n" + "\n".join(lines)
            )


class StreamEndedError(DeltaworksError):
    """A pipeline that a test ran has failed."""


class LiveTables(Mapping[str, list[dict[str, Any]]]):
    """Delta tables: `tables["revenue"]` is a list of rows.

    Args:
        root: The folder of the tables.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        from deltaworks.lakehouse.catalog import table_names
        from deltaworks.lakehouse.reading import dataset

        if name not in (known := table_names(self.root)):
            raise KeyError(f"there is no Delta table '{name}'; there are: {', '.join(known) or 'none yet'}")
        rows: list[dict[str, Any]] = dataset(self.root / name).to_table().to_pylist()
        return rows

    def __iter__(self) -> Iterator[str]:
        from deltaworks.lakehouse.catalog import table_names

        return iter(table_names(self.root))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def own_settings(home: Path, *, secured: bool = False) -> Settings:
    """The settings of the project, with a home and ports that nobody else has.

    Args:
        home: The home.
        secured: It gets three Kafka brokers with TLS, passwords and ACLs, see `stack.secured_kafka`.
    """
    from deltaworks.settings import Settings
    from deltaworks.stack.ports import free_ports

    broker, controller, postgres, airflow, sql = free_ports(5)
    settings = replace(
        Settings.from_environment(),
        home=home,
        bootstrap=f"127.0.0.1:{broker}",
        controller_port=controller,
        postgres_port=postgres,
        airflow_port=airflow,
        sql_port=sql,
    )
    if not secured:
        return settings
    from deltaworks.stack import secured_kafka

    return secured_kafka.make(settings, free_ports)


def _encoded(content: Any, given: Any, topic: str, part: str) -> bytes | None:
    if content is None:
        return None
    return topic_serde(type(content) if given is None else given, None, topic, part).serialize(content)


def _decoded(content: bytes | None, serde: Serde[T]) -> T | None:
    return None if content is None else serde.deserialize(content)


def _run(file: Path) -> int:
    """Runs the pipeline of a file; returns the exit code."""
    from deltaworks import exits
    from deltaworks.settings import Settings
    from deltaworks.spark.streaming import run

    settings = Settings.from_environment()
    try:
        run(pickle.loads(file.read_bytes()), settings, until_caught_up=True)
    except DeltaworksError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return exits.code_of(error)
    return exits.OK


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1])))
