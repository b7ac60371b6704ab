"""The cluster that runs tasks: which one, who may, and whether it answers.

The driver stays a process of its own, wherever it runs. The kinds of clusters are in `control.clusters`;
`spark.cluster` says how the session of a driver differs.
"""

from __future__ import annotations

from deltaworks.control.clusters import kubernetes, standalone, yarn
from deltaworks.control.clusters.kubernetes import Kubernetes
from deltaworks.control.clusters.model import AUTHENTICATE, MASTER, PYTHON, Cluster
from deltaworks.control.clusters.standalone import Standalone
from deltaworks.control.clusters.yarn import Yarn
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

OF_A_CLUSTER = frozenset({MASTER, AUTHENTICATE, PYTHON})
"""Settings of Spark that say where tasks run; a session on this machine has no use for them."""


def of(settings: Settings, name: str) -> Cluster | None:
    """The cluster that the tasks of a stream run on; None: they run in its driver's JVM.

    Raises:
        ConfigurationError: the settings do not fit together.
    """
    own = settings.spark_of(name)
    if (master := own.get(MASTER)) is None or settings.spark_tasks == "here":
        return None
    kind = _kind(master)
    if kind is None:
        raise ConfigurationError(
            f"The master {master!r} of '{name}' is no cluster that runs tasks.",
            hint="spark://HOST:PORT, yarn or k8s://https://HOST:PORT; or nothing: then tasks run in the driver",
        )
    if settings.storage is None or settings.remote is None:
        raise ConfigurationError(
            f"'{name}' runs on the cluster {master}, whose executors cannot reach the home {settings.home}.",
            hint='keep its state and tables in an object store: storage = "s3://BUCKET/FOLDER", no tables = "home"',
        )
    return kind.of(settings, name, own)


def _kind(master: str) -> type[Standalone | Yarn | Kubernetes] | None:
    if standalone.names(master):
        return Standalone
    if master == yarn.NAME:
        return Yarn
    return Kubernetes if kubernetes.names(master) else None
