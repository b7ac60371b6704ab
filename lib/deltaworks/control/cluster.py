"""A standalone cluster of Spark that runs tasks: which one, who may, and whether it answers.

The driver stays a process of its own, wherever it runs. `spark.cluster` says how its session differs.
"""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass, field

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings

OF_A_CLUSTER = frozenset({"spark.master", "spark.authenticate", "spark.pyspark.python"})
"""Settings of Spark that say where tasks run; a session on this machine has no use for them."""
_CONNECT_S = 5.0
_LOOPBACK = ("127.0.0.1", "localhost")
_MASTERS = re.compile(r"spark://[^,/:]+:[0-9]+(,[^,/:]+:[0-9]+)*")
_PORTS = range(1, 65536)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster, as one stream uses it."""

    master: str
    """`spark://HOST:PORT`; several masters of one cluster have a comma between them."""
    python: str
    """Of the executors: a path, or one relative to the folder that they work in."""
    secret: str | None = field(repr=False)
    """What Spark's processes authenticate with; None: the cluster lets everybody in."""
    cores: int
    """So many tasks run at once at most."""

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each master."""
        return _addresses(self.master)

    @property
    def is_here(self) -> bool:
        """Whether all of it is on this machine, so that nobody else needs to reach the driver."""
        return all(host in _LOOPBACK for host, _ in self.addresses)

    def require_answer(self) -> None:
        """Raises `StackError` if no master takes connections."""
        last: OSError | UnicodeError | None = None
        for address in self.addresses:
            try:
                with socket.create_connection(address, timeout=_CONNECT_S):
                    return
            except (OSError, UnicodeError) as error:  # the latter: no machine can have that name
                last = error
        raise StackError(f"The Spark cluster {self.master} does not answer: {last}.", hint="start its master")


def of(settings: Settings, name: str) -> Cluster | None:
    """The cluster that the tasks of a stream run on; None: they run in its driver's JVM.

    Raises:
        ConfigurationError: the settings do not fit together.
    """
    own = settings.spark_of(name)
    if (master := own.get("spark.master")) is None or settings.spark_tasks == "here":
        return None
    if not _MASTERS.fullmatch(master) or any(port not in _PORTS for _, port in _addresses(master)):
        raise ConfigurationError(
            f"The master {master!r} of '{name}' is no standalone cluster of Spark.",
            hint="spark://HOST:PORT, or nothing: then tasks run in the driver",
        )
    if settings.storage is None or settings.remote is None:
        raise ConfigurationError(
            f"'{name}' runs on the cluster {master}, whose executors cannot reach the home {settings.home}.",
            hint='keep its state and tables in an object store: storage = "s3://BUCKET/FOLDER", no tables = "home"',
        )
    open_to_all = own.get("spark.authenticate") == "false"
    secret = None if open_to_all else settings.spark_secret_of(name)
    if secret is None and not open_to_all:
        raise ConfigurationError(
            f"'{name}' runs on the cluster {master}, and no secret says that it may.",
            hint='"spark.authenticate.secret" = { file = "..." }, as its master and workers have it, in [spark]; '
            'or "spark.authenticate" = false, if the cluster lets everybody in',
        )
    return Cluster(
        master=master,
        python=own.get("spark.pyspark.python") or sys.executable,
        secret=secret,
        cores=settings.cores,
    )


def _addresses(master: str) -> list[tuple[str, int]]:
    places = master.removeprefix("spark://").split(",")
    return [(host, int(port)) for host, _, port in (place.rpartition(":") for place in places)]
