"""Finds out whose stack listens on a port of this machine: this project's or another's.

The runner of a stack starts all of its components and ends with them. So the runner is an ancestor of the process that
listens, and its environment names home and project. No server is queried, and no password is sent.

It cannot see processes of other users (unless we are root), processes in a container or on another machine, or
processes that no runner started, such as a separate Kafka. All of these count as nobody's stack.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from deltaworks.errors import DeltaworksError, StackError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    import psutil

RUNNER = "deltaworks.stack.runner"
"""The module that starts the components of a stack, as it appears in the command line of the process."""
_LOOPBACK = "127.0.0.1"
_HINT = "run `deltaworks down` in that project, then `deltaworks up` here"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The stack of a component that listens on a port."""

    component: str
    project: Path
    home: Path

    def __str__(self) -> str:
        return f"{self.component} of the project {self.project} (home {self.home})"


def listener(port: int) -> psutil.Process | None:
    """The process that listens on a port; None if there is none or it is another user's."""
    import psutil

    with suppress(psutil.Error):
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return psutil.Process(connection.pid)
    return None


def stack_on(port: int) -> Stack | None:
    """The stack whose component listens on a port; None if no stack is visible."""
    import psutil

    process = listener(port)
    if process is None:
        return None
    with suppress(psutil.Error, KeyError):
        for above in (process, *process.parents()):
            if RUNNER in above.cmdline():
                environment = above.environ()
                home, project = Path(environment["DELTAWORKS_HOME"]).resolve(), Path(environment["DELTAWORKS_PROJECT"])
                return Stack(component=_component(home, port), project=project, home=home)
    return None


def require_none_of_another(
    settings: Settings,
    port: int,
    *,
    error: type[DeltaworksError] = StackError,
    other_port: str = "use another port for one of them",
) -> None:
    """Raises if a component of another home listens on a port of this home's stack."""
    stack = stack_on(port)
    if stack is not None and stack.home != settings.home.resolve():
        raise error(
            f"Port {port} is used by {stack}; it does not belong to {settings.home} and was left alone.",
            hint=f"{_HINT}; or {other_port}",
        )


def require_own_kafka(settings: Settings) -> None:
    """Raises `StackError` if the stack of another home listens where this home's own Kafka should.

    A Kafka that the settings name elsewhere is accepted, whoever runs it.
    """
    for port in _own_kafka_ports(settings):
        require_none_of_another(
            settings,
            port,
            other_port="set DELTAWORKS_BOOTSTRAP=127.0.0.1:<port> for one of them; to use that Kafka on purpose, "
            f"set DELTAWORKS_BOOTSTRAP=localhost:{port}",
        )


def is_own_kafka(settings: Settings) -> bool:
    """Whether the settings name the Kafka that this home's stack runs, or would run."""
    return bool(_own_kafka_ports(settings))


def _own_kafka_ports(settings: Settings) -> tuple[int, ...]:
    """Where the home's own brokers listen, or would; empty: the settings name another Kafka.

    Own is the default address, and every one of this machine while this home has brokers of its own.
    """
    ports = settings.broker_ports
    if settings.bootstrap == Settings.bootstrap:
        return ports
    here = ",".join(f"{_LOOPBACK}:{port}" for port in ports)
    has_one = (settings.kafka / "data" / "meta.properties").is_file() and len(ports) == 1
    has_some = has_one or settings.kafka_access_in(settings.home).is_file()
    return ports if has_some and settings.bootstrap == here else ()


def _component(home: Path, port: int) -> str:
    """The name of the component on a port, according to the runner of that home."""
    with suppress(OSError, msgspec.DecodeError, KeyError, TypeError):
        state = msgspec.json.decode((home / "run" / "runner.state").read_bytes())
        return next((str(each["name"]) for each in state["components"] if port in each["ports"]), "a component")
    return "a component"
