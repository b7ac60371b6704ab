"""What all kinds of clusters have in common: which one, what Spark is told of it, and whether it answers."""

from __future__ import annotations

import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from deltaworks.errors import ConfigurationError, StackError

MASTER, AUTHENTICATE, PYTHON = "spark.master", "spark.authenticate", "spark.pyspark.python"
LOOPBACK = ("127.0.0.1", "localhost")
PORTS = range(1, 65536)
_CONNECT_S = 5.0
_CORES_AT_ONCE = 4
"""Cores of an executor, if nobody says how many: fewer JVMs, but executors that still find a place."""
_JVM_MB, _PYTHON_MB = 384, 512
"""What an executor needs beside its heap: for its JVM, and for the Python worker of each core."""
_CORES, _INSTANCES = "spark.executor.cores", "spark.executor.instances"
_FACTOR = "spark.executor.memoryOverheadFactor"
"""Of Spark's heap; an absolute number would win over it."""
_DYNAMIC, _MOST = "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors"


@dataclass(frozen=True, kw_only=True)
class Cluster(ABC):
    """A cluster, as one stream uses it."""

    archives: ClassVar[str] = "spark.archives"
    """The setting with the archives that executors unpack into the folder that they work in."""
    kind: ClassVar[str]
    """What it is, for people."""
    hint: ClassVar[str]
    """What to do if it does not answer."""

    master: str
    """As Spark calls it."""
    python: str
    """Of the executors: a path, or one relative to the folder that they work in."""
    cores: int
    """So many tasks run at once at most."""

    @property
    def at(self) -> str:
        """Where it is, for people."""
        return self.master

    def __str__(self) -> str:
        return f"{self.kind} {self.at}"

    @property
    @abstractmethod
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of whoever gives out executors; several stand in for each other."""

    @property
    def is_here(self) -> bool:
        """Whether all of it is on this machine, so that nobody else needs to reach the driver."""
        return all(host in LOOPBACK for host, _ in self.addresses)

    @property
    def shared_secret(self) -> str | None:
        """What Spark's processes authenticate with, if somebody else has made it."""
        return None

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the driver's JVM needs."""
        return {}

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """What Spark is told of the cluster, unless the project says otherwise; raises `StackError` if the cluster does
        not answer, where it has to."""

    def require_answer(self) -> None:
        """Raises `StackError` if nobody takes connections."""
        self.own_address()

    def own_address(self) -> str:
        """The address of this machine, as it connects to the cluster; raises `StackError` if nobody answers there."""
        last: OSError | UnicodeError | None = None
        for address in self.addresses:
            try:
                with socket.create_connection(address, timeout=_CONNECT_S) as connection:
                    return str(connection.getsockname()[0])
            except (OSError, UnicodeError) as error:  # the latter: no machine can have that name
                last = error
        raise StackError(f"The {self} does not answer: {last}.", hint=self.hint)


def containers(own: Mapping[str, str], cores: int, master: str) -> dict[str, str]:
    """Settings of executors that a cluster starts one by one, each in a container with a limit of memory.

    A standalone cluster takes `spark.cores.max` instead, and its workers have no limit.

    Args:
        own: the settings of the project.
        cores: so many tasks run at once at most.
        master: for errors.

    Raises:
        ConfigurationError: the executors of the project have more cores than that.
    """
    each = _number(own, _CORES) or max(size for size in range(1, _CORES_AT_ONCE + 1) if cores % size == 0)
    dynamic = own.get(_DYNAMIC) == "true"
    count = _number(own, _MOST if dynamic else _INSTANCES) or max(1, cores // each)
    if count * each > cores:
        raise ConfigurationError(
            f"{count} executors with {each} cores on {master} would run {count * each} tasks at once; cores = {cores}.",
            hint=f"cores = {count * each}, or a smaller {_MOST if dynamic else _INSTANCES} or {_CORES}",
        )
    memory = {} if _FACTOR in own else {"spark.executor.memoryOverhead": f"{_JVM_MB + _PYTHON_MB * each}m"}
    return {
        **memory,
        AUTHENTICATE: "true",  # the driver makes a secret, and the cluster hands it to the executors
        _CORES: str(each),
        _MOST if dynamic else _INSTANCES: str(count),
        # Executors of a stream fail over months: only many in a short time are a reason to begin anew.
        "spark.executor.maxNumFailures": str(max(20, 4 * count)),
        "spark.executor.failuresValidityInterval": "10m",
    }


def _number(own: Mapping[str, str], name: str) -> int | None:
    if (text := own.get(name)) is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"{name} is {text!r}; it is a number of at least 1.")
    return int(text)


def python_of(own: Mapping[str, str]) -> str:
    """The Python of executors: as the project says, else at the path of the driver's."""
    return own.get(PYTHON) or sys.executable
