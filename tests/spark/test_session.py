"""What a session opens, on a real JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from deltaworks.spark import session

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    path = os.environ.get("PYTHONPATH", "")
    found = session.build("closed", cores=1, partitions=1, driver_memory="512m", scratch=tmp_path, python_path=path)
    try:
        yield found
    finally:
        found.stop()


def listening(process: psutil.Process) -> set[str]:
    connections = process.net_connections(kind="inet")
    return {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}


def test_a_session_listens_on_loopback_only_and_shows_its_secret_to_nobody(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize(range(4), 2).map(str).collect() == ["0", "1", "2", "3"]
    context = spark.sparkContext
    driver = psutil.Process()
    family = [driver, *driver.children(recursive=True)]
    java = [process for process in family if "java" in process.name()]

    assert java
    assert set().union(*map(listening, java)), "the driver and its block manager have ports"
    assert set().union(*map(listening, family)) <= LOOPBACK

    security = context._jsc.sc().env().securityManager()
    assert security.isAuthenticationEnabled()
    gateway: Any = context._gateway
    secrets = [security.getSecretKey(), gateway.java_parameters.auth_token]
    running = [process for process in family if process.status() != psutil.STATUS_ZOMBIE]
    shown = [word for process in running for word in process.cmdline()]
    assert all(secrets)
    assert not [secret for secret in secrets if any(secret in word for word in shown)]
