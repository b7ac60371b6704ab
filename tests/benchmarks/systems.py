"""How each system is started for a topology, and how far it says it has come.

Every system reads `bench-bids` (and `bench-auctions`) and writes one output topic; progress is what it has committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, assert_never

import msgspec
import pyspark
from confluent_kafka import Consumer, TopicPartition

from deltaworks.control import heartbeat
from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import find_java
from tests.benchmarks import data

Topology = Literal["filter", "filter-avro", "count", "count-avro", "session", "join", "latest"]
SystemName = Literal["deltaworks", "kafka-streams", "spark-native"]
COMMIT_INTERVAL_MS = 1_000
CORES = 2
HEAP = "1g"
_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Job:
    """One topology to run once."""

    topology: Topology
    record_cache: bool
    input: str
    output: str
    folder: Path
    """Empty; everything the run writes goes there."""
    name: str
    """Unique per run: application id, transactional ids."""
    commit_interval_ms: int = COMMIT_INTERVAL_MS
    pipeline: str | None = None
    """deltaworks only: another object of `pipelines.py` than the one of the topology."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What to start."""

    command: list[str]
    environment: Mapping[str, str]
    progress: Callable[[], int]
    """Committed input records."""
    settings: Mapping[str, object]
    """For the results: what was set, beyond what is common to all systems."""
    close: Callable[[], None] = field(default=lambda: None)


class System(Protocol):
    """A system under test."""

    def launch(self, job: Job) -> Launch:
        """Prepares one run."""


def system(name: SystemName, settings: Settings, scratch: Path, collector: str = "-XX:+UseParallelGC") -> System:
    """The system of a name; compiles and downloads what it needs."""
    match name:
        case "deltaworks":
            return Deltaworks(settings)
        case "kafka-streams":
            return KafkaStreams(settings, scratch, collector)
        case "spark-native":
            return SparkNative(settings)
        case _:
            assert_never(name)


class KafkaStreams:
    """Kafka Streams in Java, exactly_once_v2, as many threads as cores, RocksDB stores."""

    CACHE_BYTES = 10 * 1024 * 1024
    """Kafka Streams' default."""

    def __init__(self, settings: Settings, scratch: Path, collector: str) -> None:
        self._settings = settings
        java = find_java(settings, read_components(settings.infra).java_versions)
        self._java = java.executable
        jars = [*ensure_jars(settings, "kafka-streams"), *Path(pyspark.__path__[0]).glob("jars/avro-1.*.jar")]
        classes = scratch / "classes"
        classes.mkdir(parents=True, exist_ok=True)
        jar_path = os.pathsep.join(str(jar) for jar in jars)
        compiler = java.home / "bin" / "javac"
        if not compiler.exists():
            raise RuntimeError(f"{compiler} is missing: the comparison with Kafka Streams needs a JDK, not only a JRE")
        source = _HERE / "java" / "StreamsPeer.java"
        subprocess.run([compiler, "-proc:none", "-d", classes, "-cp", jar_path, source], check=True)
        self._class_path = os.pathsep.join([str(classes), str(_HERE / "java"), jar_path])
        self._collector = collector

    def launch(self, job: Job) -> Launch:
        options = {
            "application.id": job.name,
            "bootstrap.servers": self._settings.bootstrap,
            "num.stream.threads": str(CORES),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": str(job.commit_interval_ms),
            "statestore.cache.max.bytes": str(self.CACHE_BYTES if job.record_cache else 0),
            "auto.offset.reset": "earliest",
            "state.dir": str(job.folder / "state"),
        }
        java = [f"-Xms{HEAP}", f"-Xmx{HEAP}", self._collector]
        progress = GroupProgress(self._settings.bootstrap, job.name, job.input)
        return Launch(
            command=[
                *(str(self._java), *java, "-cp", self._class_path, "StreamsPeer"),
                *(job.topology, job.input, data.AUCTIONS, job.output),
                *(f"{key}={value}" for key, value in options.items()),
            ],
            environment=os.environ,
            progress=progress,
            settings={"jvm": java, "version": "4.3.1", **options},
            close=progress.close,
        )


class Deltaworks:
    """The pipelines of `pipelines.py`, each with a home of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def launch(self, job: Job) -> Launch:
        name = job.topology.replace("-", "_")
        pipeline = job.pipeline or (name if job.record_cache else f"{name}_uncached")
        environment = {
            "DELTAWORKS_HOME": str(job.folder / "home"),
            "DELTAWORKS_BOOTSTRAP": self._settings.bootstrap,
            "DELTAWORKS_CORES": str(CORES),
            "DELTAWORKS_DRIVER_MEMORY": HEAP,
            "BENCHMARK_INPUT": job.input,
            "BENCHMARK_OUTPUT": job.output,
            "BENCHMARK_TRIGGER_MS": str(job.commit_interval_ms),
        }
        beat = job.folder / "home" / "pipelines" / pipeline.replace("_", "-") / "heartbeat.json"

        def progress() -> int:
            latest = heartbeat.read(beat)
            return 0 if latest is None else sum(latest.next_offsets.get(job.input, {}).values())

        return Launch(
            command=[sys.executable, "-m", "tests.benchmarks.host", pipeline],
            environment={**os.environ, **environment},
            progress=progress,
            settings={
                "pipeline": pipeline,
                "trigger_interval_ms": job.commit_interval_ms,
                "max_records_per_batch": self._settings.max_records_per_batch,
                "record_cache": job.record_cache,
            },
        )


class SparkNative:
    """Spark's own plan for the count: `groupBy(window)` from the JVM's Kafka source to its Kafka sink."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jars = ensure_jars(settings, "spark-kafka")

    def launch(self, job: Job) -> Launch:
        checkpoint = job.folder / "checkpoint"
        options = {
            "bootstrap": self._settings.bootstrap,
            "input": job.input,
            "output": job.output,
            "folder": str(job.folder),
            "jars": ",".join(str(jar) for jar in self._jars),
            "cores": str(CORES),
            "heap": HEAP,
            "trigger_ms": str(job.commit_interval_ms),
            "max_records": str(self._settings.max_records_per_batch),
        }
        return Launch(
            command=[sys.executable, "-m", "tests.benchmarks.spark_native", msgspec.json.encode(options).decode()],
            environment=os.environ,
            progress=lambda: checkpoint_progress(checkpoint, job.input),
            settings={"guarantee": "at least once into Kafka; not exact on late records", **options, "jars": ""},
        )


class GroupProgress:
    """Sum of the offsets that a consumer group has committed on a topic."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        )
        self._partitions = [TopicPartition(topic, partition) for partition in range(data.PARTITIONS)]
        self._last = 0

    def __call__(self) -> int:
        try:
            committed = self._consumer.committed(self._partitions, timeout=5)
        except Exception:  # the group's coordinator may still load; the next sample will tell
            return self._last
        self._last = max(self._last, sum(max(0, partition.offset) for partition in committed))
        return self._last

    def close(self) -> None:
        """Leaves the broker."""
        self._consumer.close()


def checkpoint_progress(checkpoint: Path, topic: str) -> int:
    """Sum of the offsets of a topic after the last committed batch of a Structured Streaming checkpoint."""
    try:
        batches = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
        lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    except (FileNotFoundError, ValueError):
        return 0
    for line in lines[2:]:
        offsets: Mapping[str, Mapping[str, int]] = msgspec.json.decode(line)
        if topic in offsets:
            return sum(offsets[topic].values())
    return 0


def clear(folder: Path) -> Path:
    """Makes an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
