"""Finds free ports of this machine, and who listens on the others."""

from __future__ import annotations

import random
import socket
import time
from contextlib import closing

import psutil

from deltaworks import clock, listeners
from deltaworks.errors import StackError

_LOOPBACK = "127.0.0.1"
_POLL_S = 0.05
_PORTS = range(20_000, 30_000)


def is_free(port: int) -> bool:
    """Whether a component could listen on a port."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different.

    Not from the range that the system gives to outgoing connections: a client that tries again and again to reach a
    port of that range while nobody listens ends up connected to itself, and keeps the port.
    """
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(_PORTS.start, _PORTS.stop)
        if is_free(port):
            found.add(port)
    return list(found)


def answers(port: int) -> bool:
    """Whether something accepts connections on a port."""
    with closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((_LOOPBACK, port)) == 0


def require_free(port: int, component: str, hint: str, *, patience_s: float = 0.0) -> None:
    """Raises `StackError`, which names the holder, if the port is taken.

    Args:
        patience_s: how long to wait: a killed process keeps its ports until its last thread is gone.
    """
    end = clock.ticks_s() + patience_s
    while not is_free(port):
        if clock.ticks_s() > end:
            raise StackError(f"Port {port}, where {component} should listen, is used by {_holder(port)}.", hint=hint)
        time.sleep(_POLL_S)


def _holder(port: int) -> str:
    if (stack := listeners.stack_on(port)) is not None:
        return str(stack)
    process = listeners.listener(port)
    if process is None:
        return "a process of another user"
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        command = "ended meanwhile"
    return f"process {process.pid} ({command[:120]})"
