"""A session whose tasks run on a cluster (`control.cluster`): what it has that one on this machine has not.

Executors are processes of other machines, perhaps of other users, that can read no file of this one. Spark sends them
the code: an archive, unpacked into the folder that an executor works in, with `deltaworks`, `jobs` and a program
`python`. The program becomes the Python that `spark.pyspark.python` names there, which has PySpark and what else
deltaworks needs.

Spark knows only one path of Python, for the processes beside the driver, too. So the JVM of the driver works in a
folder where that path is a program of this machine.
"""

from __future__ import annotations

import io
import logging
import os
import shlex
import struct
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from deltaworks import clock
from deltaworks.control import cluster, code
from deltaworks.control.clusters.model import Cluster
from deltaworks.errors import TransientError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.spark.forking import script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = "deltaworks-code"
"""The folder of the code, in the one that a JVM works in."""
PYTHON = f"./{CODE}/python"
"""The program that Spark starts wherever it wants a Python."""
_ARCHIVES = "spark.archives"
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
_TELL_EVERY_S = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Executors:
    """The executors of one session."""

    cluster: Cluster
    code: Mapping[str, Path]
    """Path within the archive of the code -> file."""

    @classmethod
    def of(cls, settings: Settings, name: str) -> Executors | None:
        """Those of the cluster that a stream or a batch job runs on; None: its tasks run in its driver's JVM.

        Raises:
            ConfigurationError: the settings do not fit together.
            StackError: the cluster does not answer.
        """
        if (found := cluster.of(settings, name)) is None:
            return None
        found.require_answer()
        return cls(found, code.files(settings))

    def config(self, scratch: Path, java_options: str, own: Mapping[str, str]) -> dict[str, str]:
        """Spark's settings.

        Args:
            scratch: a folder of the driver, for the archive.
            java_options: of an executor.
            own: the settings of the project, which win; archives are added up.
        """
        archives = [own.get(_ARCHIVES), own.get(self.cluster.archives), f"{self._packed(scratch)}#{CODE}"]
        ours = {
            **self.cluster.settings(),
            "spark.executor.extraJavaOptions": java_options,
            "spark.executor.heartbeat.maxFailures": "6",  # a minute; the driver may have a successor
            "spark.executorEnv.MALLOC_ARENA_MAX": "2",
            "spark.executorEnv.PYTHONSAFEPATH": "1",
            "spark.shuffle.readHostLocalDisk": "false",  # executors of one machine may be of different users
            "spark.shuffle.io.retryWait": "500ms",  # not 5 s: rows of an executor that is gone are made again at once
            "spark.stage.maxConsecutiveAttempts": "10",  # not 4: as many executors may be lost before a batch fails
            "spark.locality.wait": "200ms",  # for the executor with the store of a task; then another one makes its own
        }
        return {
            **ours,
            **{name: value for name, value in own.items() if name != _ARCHIVES},
            "spark.master": self.cluster.master,
            "spark.submit.deployMode": "client",
            "spark.executorEnv.PYTHONPATH": f"./{CODE}",
            self.cluster.archives: ",".join(dict.fromkeys(filter(None, archives))),
        }

    @contextmanager
    def reached(self, conf: Mapping[str, str], scratch: Path) -> Iterator[None]:
        """Starts the JVM of a session in a folder where `PYTHON` is there; the session is made in the block.

        Raises:
            TransientError: the cluster does not take the session.
        """
        secrets, variables = scratch / "secrets.properties", dict(self.cluster.environment)
        if (secret := self.cluster.shared_secret) is not None:  # everybody can read the command line of the JVM
            replace_file(secrets, f"spark.authenticate.secret={_escaped(secret)}\n".encode(), mode=0o600)
            words = ["--properties-file", str(secrets), "--load-spark-defaults", "pyspark-shell"]
            variables[_SUBMIT] = shlex.join(words)
        before = {name: os.environ.get(name) for name in (*variables, _SUBMIT)}
        os.environ.update(variables)
        settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
        try:
            launch: Any = launch_gateway
            gateway = launch(settings, popen_kwargs={"cwd": str(scratch)})
            SparkContext._ensure_initialized(gateway=gateway)
            yield
        except Py4JJavaError as error:
            raise TransientError(
                f"The {self.cluster} does not take the stream: {_reason(error)}.",
                hint="does it run, and may we use it? Its log and ours say more",
            ) from error
        finally:
            secrets.unlink(missing_ok=True)
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def watched(self, session: SparkSession) -> None:
        """Says in the log, again and again, that the cluster has given no executor yet, until it gives one."""
        status = cast("Any", session.sparkContext)._jsc.sc().statusTracker()

        def count() -> int:
            return len(status.getExecutorInfos()) - 1  # the driver is one, too

        threading.Thread(target=tell_while_none, args=(count, str(self.cluster)), daemon=True).start()

    def _packed(self, scratch: Path) -> Path:
        """Writes the archive of the code."""
        target = scratch / f"{CODE}.tar.gz"
        with tarfile.open(target, "w:gz", compresslevel=1, dereference=True) as archive:
            for name, path in self.code.items():
                archive.add(path, name)
            program = script(self.cluster.python).encode()
            entry = tarfile.TarInfo("python")
            entry.size, entry.mode = len(program), 0o755
            archive.addfile(entry, io.BytesIO(program))
        return target


def tell_while_none(count: Callable[[], int], cluster: str, *, every_s: float = _TELL_EVERY_S) -> None:
    """Warns of a cluster that gives no executor; returns when there is one, or when the session has ended.

    Args:
        count: how many there are.
        cluster: as an error names it.
        every_s: seconds between two warnings.
    """
    begun = told = clock.ticks_s()
    try:
        while count() < 1:
            time.sleep(min(1.0, every_s))
            if clock.ticks_s() >= told + every_s:
                told = clock.ticks_s()
                _log.warning(
                    "The %s has given no executor for %.0f s, so nothing is processed: its cores or its memory may be"
                    " in use. Add workers, or give other streams fewer `cores`; its page says who has them.",
                    cluster,
                    told - begun,
                )
    except (Py4JError, OSError):
        pass  # the session has ended


def sent(settings: Settings) -> Settings:
    """The settings for those who run tasks on a cluster; paths that are sent to them say how they are reached there.

    Raises:
        ConfigurationError: a secret is not there.
    """
    found = settings.without_references()
    for remote in (found.storage, found.remote):
        assert remote is not None, "the home cannot be reached by executors"
        _ = remote.path  # from now on, this process knows the store without references
    return found


def _reason(error: Py4JJavaError) -> str:
    """The first line of what Java says."""
    return str(error.java_exception.getMessage()).partition("\n")[0].rstrip(".")


def _escaped(value: str) -> str:
    """A value as a file of properties has it, which counts in units of UTF-16."""
    units = struct.iter_unpack(">H", value.encode("utf-16-be", "surrogatepass"))
    return "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else f"\\u{unit:04x}" for (unit,) in units)
