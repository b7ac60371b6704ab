"""Kubernetes: the driver asks the API server for a pod per executor.

The driver is a process of the supervisor, which is in a pod itself (`infra/kubernetes`), so that it is supervised and
drained like any other. The executors are owned by that pod, and connect to its address. They get the secret that the
driver has made in their environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deltaworks.control.clusters.model import MASTER, PORTS, Cluster, containers, python_of
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

_MASTER = re.compile(r"k8s://(https?://)?(?P<host>[^,/:@?#\s\[\]]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]+)/?")
_PREFIX = "spark.kubernetes"
_NAMESPACE = f"{_PREFIX}.namespace"
_IMAGES = (f"{_PREFIX}.container.image", f"{_PREFIX}.executor.container.image")
_VOLUMES = f"{_PREFIX}.executor.volumes."
_LOCAL = "spark-local-dir-"
"""Begins the names of the volumes that Spark takes for the folders of an executor."""


@dataclass(frozen=True, kw_only=True)
class Kubernetes(Cluster):
    """A namespace in Kubernetes; its master is `k8s://https://HOST:PORT`, the address of the API server."""

    kind = "Kubernetes cluster"
    hint = "k8s://https://kubernetes.default.svc:443 is the API server of the cluster that a pod is in"

    pods: Mapping[str, str]
    """Settings of its executors."""

    @classmethod
    def of(cls, settings: Settings, pipeline: str, own: Mapping[str, str]) -> Kubernetes:
        """The one that the settings of a pipeline name; raises `ConfigurationError` if they lack namespace or image."""
        for names, what in ((_IMAGES, "the image of its executors"), ((_NAMESPACE,), "the namespace of its executors")):
            if not any(own.get(name) for name in names):
                raise ConfigurationError(
                    f"'{pipeline}' runs on Kubernetes, and nothing says what {what} is.",
                    hint=f'"{names[0]}" = "...", in [spark]',
                )
        cores = settings.cores
        return cls(master=own[MASTER], python=python_of(own), cores=cores, pods=_pods(own, cores))

    @property
    def addresses(self) -> list[tuple[str, int]]:
        match = _MASTER.fullmatch(self.master)
        assert match is not None, self.master
        return [(match["host"].strip("[]"), int(match["port"]))]

    @property
    def is_here(self) -> bool:
        return False  # wherever the API server is, a pod has an address of its own

    def settings(self) -> dict[str, str]:
        # The name of a pod is known to others only once the pod is ready.
        return {**self.pods, "spark.driver.host": _in_url(self.own_address())}


def names(master: str) -> bool:
    """Whether a master is that of Kubernetes."""
    return (match := _MASTER.fullmatch(master)) is not None and int(match["port"]) in PORTS


def _pods(own: Mapping[str, str], cores: int) -> dict[str, str]:
    """Settings of executors. With the last four, a driver needs rights for pods, and for nothing else."""
    ours = {
        **containers(own, cores, "Kubernetes"),
        f"{_PREFIX}.executor.disableConfigMap": "true",
        f"{_PREFIX}.driver.service.deleteOnTermination": "false",
        f"{_PREFIX}.driver.ownPersistentVolumeClaim": "false",
        f"{_PREFIX}.driver.reusePersistentVolumeClaim": "false",
    }
    if any(name.startswith(_VOLUMES) and f".{_LOCAL}" in name for name in own):
        return ours
    # Without it, Spark makes a volume at the path of the driver's folder.
    return {f"{_VOLUMES}emptyDir.{_LOCAL}1.mount.path": "/var/data/deltaworks", **ours}


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address
