"""A standalone cluster of Spark: masters, workers, and a secret that all of them have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from deltaworks.control.clusters.model import AUTHENTICATE, MASTER, PORTS, Cluster, python_of
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

_MASTERS = re.compile(r"spark://[^,/:]+:[0-9]+(,[^,/:]+:[0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Standalone(Cluster):
    """Its master is `spark://HOST:PORT`; several masters of one cluster have a comma between them."""

    kind = "Spark cluster"
    hint = "start its master"

    secret: str | None = field(repr=False)
    """What Spark's processes authenticate with; None: the cluster lets everybody in."""

    @classmethod
    def of(cls, settings: Settings, pipeline: str, own: Mapping[str, str]) -> Standalone:
        """The one that the settings of a pipeline name; raises `ConfigurationError` if no secret says that it may."""
        master, open_to_all = own[MASTER], own.get(AUTHENTICATE) == "false"
        secret = None if open_to_all else settings.spark_secret_of(pipeline)
        if secret is None and not open_to_all:
            raise ConfigurationError(
                f"'{pipeline}' runs on the cluster {master}, and no secret says that it may.",
                hint='"spark.authenticate.secret" = { file = "..." }, as its master and workers have it, in [spark]; '
                'or "spark.authenticate" = false, if the cluster lets everybody in',
            )
        return cls(master=master, python=python_of(own), cores=settings.cores, secret=secret)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return _addresses(self.master)

    @property
    def shared_secret(self) -> str | None:
        return self.secret

    def settings(self) -> dict[str, str]:
        return {AUTHENTICATE: str(self.secret is not None).lower(), "spark.cores.max": str(self.cores)}


def names(master: str) -> bool:
    """Whether a master is that of a standalone cluster."""
    return _MASTERS.fullmatch(master) is not None and all(port in PORTS for _, port in _addresses(master))


def _addresses(master: str) -> list[tuple[str, int]]:
    places = master.removeprefix("spark://").split(",")
    return [(host, int(port)) for host, _, port in (place.rpartition(":") for place in places)]
