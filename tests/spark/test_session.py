"""What a session opens, on a real JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from deltaworks.spark import session
from tests.support.live_stack import listening
from tests.support.processes import words

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    path = os.environ.get("PYTHONPATH", "")
    found = session.build("closed", cores=1, partitions=1, driver_memory="512m", scratch=tmp_path, python_path=path)
    try:
        yield found
    finally:
        found.stop()


def test_the_configuration_that_spark_sends_for_each_operator_of_a_batch_is_small(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    assert context._jsc.hadoopConfiguration().size() < 10


def test_threads_without_a_session_write_no_java(spark: SparkSession, tmp_path: Path) -> None:
    """Those that serve the state of a task are none of Spark's own."""
    jvm: Any = spark._jvm
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        session.heed_settings_everywhere(spark, query)
        settings = jvm.org.apache.spark.sql.internal.SQLConf.get
        with ThreadPoolExecutor(1) as elsewhere:
            factory = elsewhere.submit(lambda: settings().getConfString("spark.sql.codegen.factoryMode")).result()
    finally:
        query.stop()
    assert factory == "NO_CODEGEN"


def test_a_session_listens_on_loopback_only_and_shows_its_secret_to_nobody(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize(range(4), 2).map(str).collect() == ["0", "1", "2", "3"]
    context = spark.sparkContext
    gateway: Any = context._gateway

    assert listening(gateway.proc.pid), "the driver and its block manager have ports"
    assert {address for address, _ in listening(os.getpid())} <= LOOPBACK

    security = context._jsc.sc().env().securityManager()
    assert security.isAuthenticationEnabled()
    secrets = [security.getSecretKey(), gateway.java_parameters.auth_token]
    shown = words(psutil.Process())
    assert all(secrets)
    assert not [secret for secret in secrets if any(secret in word for word in shown)]
