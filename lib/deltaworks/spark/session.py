"""The Spark session of a stream: local cores, RocksDB state, small batches, nothing that others can access.

With authentication on, Spark with a local master makes a secret in the JVM for each session. It is in no setting, and
so on no command line and in no environment. PySpark does the same for Py4J.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from deltaworks.control.cluster import OF_A_CLUSTER
from deltaworks.errors import ConfigurationError
from deltaworks.spark import cluster
from deltaworks.spark.cluster import Executors
from deltaworks.spark.forking import ForkServer, program

_STREAMING = "spark.sql.streaming"
_CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"
_CLASSES = "org.apache.spark.sql.execution.streaming"

_HEAP = "-XX:+UseSerialGC -Xms64m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=50"
"""A heap that is a 64th of the machine from the start would hold a hundred megabytes of garbage. A heap that may grow
freely fills up with it."""

JVM = f"{_HEAP} -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss4m -Dlog4j2.level=WARN"
"""Records do not pass through the JVM: the optimising compiler would cost more than it saves."""

_LAUNCHER = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Options of the small JVM that only prints the command line of the other one; with performance data it would leave a
folder in /tmp."""

_ARENAS = "2"
"""Arenas of glibc, in the JVM and in Python's workers. With eight for each core, memory that RocksDB and Kafka's
clients have freed stays in arenas that are no longer used, and a process grows by tens of megabytes at a time."""

_COLLECT_EVERY = "1min"
"""Spark lets go of what it sent to the tasks of a batch (the settings of Hadoop, for one) only after two full
collections. Small batches cause none before the heap has grown to its limit."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_HADOOP = "spark.hadoop."
_LOOPBACK = "127.0.0.1"

_LOCAL = {
    "spark.driver.bindAddress": _LOOPBACK,  # the block manager's too
    "spark.driver.host": _LOOPBACK,
}
_CLOSED = {
    "spark.authenticate": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Only processes of this machine that know the session's secret may connect."""

_REMEMBERED = ("spark.sql.ui.retainedExecutions", "spark.ui.retainedJobs", "spark.ui.retainedStages")
"""Spark keeps the plans and figures of the last thousand, also for a user interface that nobody sees: 60 MB."""

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""A batch has a few rows. Spark would write Java for them in every batch and task, to find it compiled already."""


def build(
    name: str,
    *,
    cores: int,
    partitions: int,
    driver_memory: str,
    scratch: Path,
    python_path: str,
    forks: ForkServer | None = None,
    options: str = "",
    extra: Mapping[str, str] | None = None,
    executors: Executors | None = None,
) -> SparkSession:
    """A session for one streaming query.

    Args:
        name: Application name.
        cores: cores of the local master; a failed task (a killed Python worker) is tried three times.
        partitions: Shuffle partitions, frozen with the checkpoint.
        driver_memory: JVM heap, as Spark writes it.
        scratch: Shuffle files, temporary RocksDB copies and the warehouse.
        python_path: PYTHONPATH of the workers.
        forks: Where all Python processes of the session come from; None: each is started separately.
        options: Further options of the JVM.
        extra: Further Spark settings, which win; options of the JVM are added to ours. Those that name a cluster are
            left out.
        executors: Run the tasks; None: the driver's JVM does.

    Raises:
        ConfigurationError: no program may be started in `scratch`, and there are executors.
        TransientError: the cluster does not take the session.
    """
    folder = scratch if executors is None else scratch / cluster.CODE
    folder.mkdir(parents=True, exist_ok=True)
    python = sys.executable if forks is None else forks.executable(folder)
    if executors is not None:
        python = program(folder, sys.executable) if forks is None else python
        if python == sys.executable:
            raise ConfigurationError(
                f"No program can be started in {folder}.", hint="is its disk mounted noexec? DELTAWORKS_HOME=<another>"
            )
        python = cluster.PYTHON
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ["PYTHONPATH"] = python_path  # the JVM hands it to every Python process that it starts
    os.environ["PYTHONSAFEPATH"] = "1"  # else a `jobs` in the current directory comes before that of the project
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
    os.environ.setdefault("MALLOC_ARENA_MAX", _ARENAS)
    own = dict(extra or {})
    options = f"{options} {own.pop(_JAVA_OPTIONS, '')}"
    settings = config(
        partitions=partitions, driver_memory=driver_memory, scratch=scratch, python_path=python_path, options=options
    )
    settings = placed(settings, own, cores=cores, scratch=scratch, executors=executors)
    if executors is None or executors.cluster.is_here:
        os.environ["SPARK_LOCAL_IP"] = _LOOPBACK
    builder = SparkSession.builder.appName(name).config(map={**settings})
    with nullcontext() if executors is None else executors.reached(settings, scratch):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if executors is not None:
        executors.watched(session)
    _only_what_is_set(session)
    return session


def placed(
    settings: Mapping[str, str],
    own: Mapping[str, str],
    *,
    cores: int,
    scratch: Path,
    executors: Executors | None = None,
) -> dict[str, str]:
    """The settings of a session, with those that say where its tasks run, and who may connect to it.

    Args:
        settings: see `config`.
        own: those of the project, which win.
        cores: of the local master.
        scratch: a folder of the driver.
        executors: run the tasks; None: the driver's JVM does.
    """
    if executors is None:
        theirs = {name: value for name, value in own.items() if name not in OF_A_CLUSTER}
        return {**settings, **theirs, "spark.master": f"local[{cores},3]", **_LOCAL}
    found = {**settings, **executors.config(scratch, JVM, own)}
    return found | _LOCAL if executors.cluster.is_here else found


def config(
    *, partitions: int, driver_memory: str, scratch: Path, python_path: str, options: str = ""
) -> dict[str, str]:
    """Spark's settings. They are on the JVM's command line, where everybody can read them: no secrets."""
    folder = shlex.quote(str(scratch))  # as Spark parses it
    return {
        "spark.driver.memory": driver_memory,
        _JAVA_OPTIONS: f"{JVM} {options} -Djava.io.tmpdir={folder} -Dderby.system.home={folder}",
        **_CLOSED,
        **dict.fromkeys(_REMEMBERED, "10"),
        "spark.cleaner.periodicGC.interval": _COLLECT_EVERY,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.executorEnv.PYTHONPATH": python_path,
        "spark.python.daemon.module": "deltaworks.spark.daemon",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.exchange.reuse": "false",
        **_INTERPRETED,
        "spark.shuffle.compress": "false",
        # A task that runs again sends the same records. What it tells the driver differs (names of files, figures), and
        # Spark would end the query for it.
        f"{_CHECKSUM}.enabled": "false",
        f"{_CHECKSUM}.enableFullRetryOnMismatch": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.sql.session.timeZone": "UTC",
        f"{_STREAMING}.stateStore.providerClass": f"{_CLASSES}.state.RocksDBStateStoreProvider",
        f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STREAMING}.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        f"{_STREAMING}.checkpointFileManagerClass": f"{_CLASSES}.checkpointing.FileSystemBasedCheckpointFileManager",
        f"{_STREAMING}.metricsEnabled": "false",
        f"{_STREAMING}.numRecentProgressUpdates": "10",
        f"{_STREAMING}.pollingDelay": "10ms",
        f"{_STREAMING}.stopTimeout": "30s",
    }


def heed_settings_everywhere(session: SparkSession, query: StreamingQuery) -> None:
    """Lets all threads of the JVM see the settings of its one query.

    The threads that serve the state of a task have no session, so they would take Spark's defaults and generate code
    for every variable of the state in every batch: a third of what the JVM does in a small one.

    Args:
        session: of the query.
        query: has begun.
    """
    jvm: Any = session._jvm
    conf = query._jsq.streamingQuery().sparkSessionForStream().sessionState().conf()
    supplier = jvm.org.sparkproject.guava.base.Suppliers.ofInstance(conf)
    getter = getattr(jvm.scala.jdk, "FunctionWrappers$FromJavaSupplier")(supplier)
    jvm.org.apache.spark.sql.internal.SQLConf.setSQLConfGetter(getter)


def _only_what_is_set(session: SparkSession) -> None:
    """Removes Hadoop's defaults from its configuration; its code has them anyway.

    Spark packs the whole configuration, a thousand entries, for each stateful operator in every batch.
    """
    context: Any = session.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    hadoop.clear()
    for name, value in context.getConf().getAll():
        if name.startswith(_HADOOP):
            hadoop.set(name.removeprefix(_HADOOP), value)
