"""Starts the SQL server: `python -m deltaworks.stack.sql.server` prepares it and becomes its JVM.

Clients are the user of the settings with a password, which the home keeps unless the settings have one. The JVM gets
both in its environment, which no other user of the machine can read, and never on its command line; likewise the keys
of an object store that has the tables.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from deltaworks import home
from deltaworks.errors import DeltaworksError
from deltaworks.files import replace_file
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from deltaworks.stack.components import Report, read_components
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.jars import OBJECT_STORE, ensure_jars
from deltaworks.stack.java import Java, find_java
from deltaworks.stack.sql.compiled import compiled, spark_jars

_MAIN = "org.apache.spark.sql.hive.thriftserver.Server"
_PASSWORD = "org.apache.spark.sql.hive.thriftserver.Password"
_FOLDERS = ("hive.exec.scratchdir", "hive.exec.local.scratchdir", "hive.downloaded.resources.dir")
"""Where Hive's sessions look for files of theirs."""
_NO_RULES = "org.apache.spark.sql.hive.thriftserver.NoRules"
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
"""Packages of Java that Spark reaches into."""
_RESULT_SHARE = 16
"""The rows of an answer may take this part of the memory, compressed; as objects, they take several times as much."""
_IDLE_MS = 3_600_000
"""A session, and an answer that nobody reads, is closed after so long."""


def credentials(settings: Settings) -> Credentials:
    """How a client gets in. The password is made, and kept in the home, unless the settings have one."""
    url = f"jdbc:hive2://{settings.sql_host}:{settings.sql_port}/default"
    file, created_now = settings.sql / "password", False
    password = settings.sql_password
    if not password:
        if created_now := not file.is_file():
            replace_file(file, f"{secrets.token_urlsafe(18)}\n".encode(), mode=0o600)
        password = file.read_text().strip()
    return Credentials(url=url, user=settings.sql_user, password=password, file=file, created_now=created_now)


def prepare(settings: Settings, report: Report = lambda _: None) -> Path:
    """Makes jars, classes and the password; returns the folder of the classes.

    Raises:
        StackError: jars are missing, or the server cannot be compiled.
        ConfigurationError: no Java or PySpark is usable, or a jar does not match the lock.
    """
    credentials(settings)
    delta, *_ = [ensure_jars(settings, name, report) for name in _sets(settings)]
    return compiled(settings, _java(settings), delta, report)


def command(settings: Settings) -> list[str]:
    """The command that starts the server."""
    classes, jars = prepare(settings), [jar for name in _sets(settings) for jar in ensure_jars(settings, name)]
    options = [f"-D{name}={value}" for name, value in _properties(settings).items()]
    classpath = ":".join(map(str, (classes, *jars, spark_jars() / "*")))
    return [
        str(_java(settings).executable),
        *_jvm(settings),
        *options,
        *("-cp", classpath, _MAIN, str(settings.tables)),
    ]


def store_environment(settings: Settings) -> dict[str, str]:
    """Variables of the JVM that say how it reaches the object store of the tables, with its keys; none: they are here.

    Raises:
        ConfigurationError: a secret is not there.
    """
    tables = settings.tables
    if not isinstance(tables, ObjectPath):
        return {}
    authorities = tables.store.arrow().get("tls_ca_file_path")
    found = {"DELTAWORKS_SQL_HADOOP": json.dumps(tables.store.hadoop())}
    return found if authorities is None else found | {"DELTAWORKS_SQL_AUTHORITIES": str(authorities)}


def _sets(settings: Settings) -> list[str]:
    """The sets of jars: Delta's, and those that reach an object store."""
    return ["spark", OBJECT_STORE] if isinstance(settings.tables, ObjectPath) else ["spark"]


def _java(settings: Settings) -> Java:
    return find_java(settings, read_components(settings.infra).java_versions)


def _jvm(settings: Settings) -> Iterator[str]:
    yield from (f"-Xmx{settings.sql_memory_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    yield from ("-XX:+ExitOnOutOfMemoryError", "-XX:+IgnoreUnrecognizedVMOptions")
    for package in _OPENED:
        yield f"--add-opens=java.base/{package}=ALL-UNNAMED"


def _properties(settings: Settings) -> dict[str, object]:
    """Properties of the JVM. Those of Spark that say what a client may do are in no other place."""
    scratch = _scratch(settings)
    hive = {
        "authentication": "CUSTOM",
        "custom.authentication.class": _PASSWORD,
        "thrift.bind.host": settings.sql_host,
        "thrift.port": settings.sql_port,
        "transport.mode": "binary",
        "enable.doAs": "false",
        "logging.operation.enabled": "false",
        "session.check.interval": 60_000,
        "idle.session.timeout": _IDLE_MS,
        "idle.operation.timeout": _IDLE_MS,
        "thrift.max.worker.threads": 64,
    }
    found: dict[str, object] = {f"spark.hadoop.hive.server2.{name}": value for name, value in hive.items()}
    found["spark.hadoop.hive.security.authorization.manager"] = _NO_RULES
    found |= {f"spark.hadoop.{name}": scratch / name for name in _FOLDERS}
    return found | {
        "java.io.tmpdir": scratch,
        "jdk.reflect.useDirectMethodHandle": "false",
        "io.netty.tryReflectionSetAccessible": "true",
        "hive.server2.custom.authentication.class": _PASSWORD,
        "spark.master": f"local[{settings.cores}]",
        "spark.app.name": "sql",
        "spark.authenticate": "true",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.maxResultSize": f"{settings.sql_memory_mb // _RESULT_SHARE}m",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch / "warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,deltaworks.sql.ReadOnly",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.variable.substitute": "false",
        "spark.sql.hive.thriftServer.singleSession": "true",
        "spark.sql.thriftServer.queryTimeout": f"{settings.query_seconds}s",
        "spark.sql.thriftServer.interruptOnCancel": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": settings.cores,
        "spark.databricks.delta.snapshotPartitions": 1,
        "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    }


def _scratch(settings: Settings) -> Path:
    return settings.temporary / "sql"


def main() -> None:
    """Becomes the server; its exit code says whether it could."""
    settings = Settings.from_environment()
    home.make(settings)
    login = credentials(settings)
    for folder in _FOLDERS:
        (_scratch(settings) / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(_scratch(settings))
    given = {"DELTAWORKS_SQL_USER": login.user, "DELTAWORKS_SQL_PASSWORD": login.password}
    given["SPARK_LOCAL_IP"] = "127.0.0.1"  # else it looks for another address, and warns
    given |= store_environment(settings)
    found = command(settings)
    sys.stdout.flush()
    os.execve(found[0], found, settings.surroundings() | given)


if __name__ == "__main__":
    try:
        main()
    except DeltaworksError as error:
        sys.exit(f"error: {error}")
