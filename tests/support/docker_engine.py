"""A Docker engine as Testcontainers sees it: a process of this machine plays the container of a broker.

It gets the environment of the container and runs its command, whose paths and ports are those of this machine. The
script of the image, which makes a configuration of the environment and starts Kafka, is `main`.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from testcontainers.core.config import ConnectionMode, testcontainers_config

from deltaworks.settings import Settings
from deltaworks.stack import tether
from deltaworks.stack.components import read_components
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import find_java
from deltaworks.stack.ports import free_ports

PORTS = (9092, 9093, 9094)
"""Of the container."""
_RUN = "/etc/kafka/docker/run"


class Engine:
    """It answers; `told` is all that it was asked for.

    Args:
        folder: in place of the folders of containers.
        run: the command in place of the script of the image.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run
        self.api = self.images = self.containers = self
        self.headers: dict[str, str] = {}
        self.told: list[str] = []
        self.made: list[Container] = []

    def ping(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def get(self, image: str) -> None:
        self.told.append(f"image {image}")

    def create(self, image: str, *, command: list[str], environment: dict[str, str], **_: Any) -> Container:
        self.made.append(Container(self, command, environment))
        return self.made[-1]

    def port(self, container: str, port: int) -> list[dict[str, str]]:
        return [{"HostPort": str(self.made[int(container)].ports[port])}]


class Container:
    """A process with the environment of a container."""

    def __init__(self, engine: Engine, command: list[str], environment: dict[str, str]) -> None:
        self.id = self.short_id = str(len(engine.made))
        self.engine, self.command, self.environment = engine, command, environment
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.folder = engine.folder / self.id
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def status(self) -> str:
        assert self.process is not None
        return "running" if self.process.poll() is None else "exited"

    def start(self) -> None:
        (self.folder / "tmp").mkdir(parents=True)
        here = [word.replace("/tmp/", f"{self.folder}/tmp/").replace(_RUN, self.engine.run) for word in self.command]
        given = {name: self._here(value) for name, value in self.environment.items()}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*tether.COMMAND, "--signal", "SIGKILL", str(os.getpid()), *here],
                env={**os.environ, **given},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.engine.told.append("started")

    def reload(self) -> None:
        pass

    def put_archive(self, *, path: str, data: bytes) -> bool:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                content = archive.extractfile(member)
                assert content is not None
                (self.folder / member.name.lstrip("/")).write_text(self._here(content.read().decode()))
        return True

    def logs(self, *, stdout: bool = True, stderr: bool = True) -> bytes:
        return (self.folder / "log").read_bytes() if stdout else b""

    def remove(self, **_: Any) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.engine.told.append("removed")

    def _here(self, text: str) -> str:
        """What the container is told, with addresses and folders of this machine."""
        text = text.replace("0.0.0.0", "127.0.0.1").replace("/var/lib/kafka/data", f"{self.folder}/data")
        return re.sub("|".join(map(str, PORTS)), lambda port: str(self.ports[int(port[0])]), text)


@contextmanager
def answering(folder: Path, run: str | None = None) -> Iterator[Engine]:
    """An engine that answers until the block ends; without Testcontainers' own container, which removes others."""
    engine = Engine(folder, run or shlex.join([sys.executable, "-P", __file__]))
    with (
        mock.patch("docker.from_env", lambda **_: engine),
        mock.patch.dict(os.environ, {"DOCKER_HOST": "unix:///nowhere"}),
        mock.patch.object(testcontainers_config, "_ryuk_disabled", True),
        mock.patch.object(testcontainers_config, "connection_mode_override", ConnectionMode.docker_host),
        mock.patch.object(testcontainers_config, "tc_host_override", "127.0.0.1"),
    ):
        yield engine


def main() -> None:
    """Becomes a broker whose configuration is in the environment, as the script of the image does."""
    settings = Settings.from_environment()
    java = str(find_java(settings, read_components(settings.infra).java_versions).executable)
    jars = f"{ensure_jars(settings, 'kafka')[0].parent}/*"
    heap = os.environ.pop("KAFKA_HEAP_OPTS").split()
    kafka = {name.removeprefix("KAFKA_"): value for name, value in os.environ.items() if name.startswith("KAFKA_")}
    Path("server.properties").write_text(
        "".join(f"{name.lower().replace('_', '.')}={value}\n" for name, value in kafka.items())
    )
    cluster = ["-t", "5L6g3nShT-eMCtK--X86sw", "-c", "server.properties"]
    subprocess.run([java, "-cp", jars, "kafka.tools.StorageTool", "format", *cluster], check=True)
    options = [*heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    os.execv(java, [java, *options, "-cp", jars, "kafka.Kafka", "server.properties"])


if __name__ == "__main__":
    main()
