"""The real components that tests share: one stack per run of pytest, in a home and on ports of its own."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from deltaworks import clock
from deltaworks.config import Kafka
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.errors import KafkaReadError
from deltaworks.kafka.admin import Position, TopicSpec, begin_offsets, create_topics, end_offsets
from deltaworks.kafka.clients import make
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import Stack, up
from deltaworks.stack.ports import free_ports, is_free
from deltaworks.stack.state import ComponentState, read_state


def has_read(beat: Heartbeat, ends: Mapping[tuple[str, int], int]) -> bool:
    """Whether a stream has committed everything up to these ends, as `kafka.admin` tells them."""
    return all(beat.next_offsets.get(topic, {}).get(str(number), 0) >= end for (topic, number), end in ends.items())


@dataclass(frozen=True)
class LiveStack:
    """The components that were started, and what tests do with them."""

    settings: Settings
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def start(self, *names: str) -> Stack:
        """Starts these and what they need, or finds them running; no name: all."""
        return up(self.settings, only=names or None, tethered=True)

    @property
    def bootstrap(self) -> str:
        return self.settings.bootstrap

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Creates a topic that no other test has; returns its name."""
        unique = f"{name}-{next(self._numbers)}"
        create_topics(self.bootstrap, [TopicSpec(name=unique, partitions=partitions, config=config or {})])
        return unique

    def environment(self) -> dict[str, str]:
        """For a process that shall use this stack."""
        return {**os.environ, **self.settings.process_environment()}

    def read(self, *topics: str, committed: bool = True) -> list[Message]:
        """Every record of some topics, by partition and offset."""
        return read_all(self.bootstrap, *topics, committed=committed)


def kill_component(settings: Settings, name: str) -> int:
    """SIGKILL of a component of a stack; returns the id of the process that it was."""
    state = read_state(settings.run)
    found = None if state is None else state.find(name)
    assert found is not None, name
    psutil.Process(found.pid).kill()
    return found.pid


def await_restart(settings: Settings, name: str, killed_pid: int, *, timeout_s: float = 90) -> ComponentState:
    """Until the runner has brought a component back."""
    end = time.monotonic() + timeout_s
    while True:
        state = read_state(settings.run)
        component = state.find(name) if state is not None else None
        if component is not None and component.phase == "ready" and component.pid != killed_pid:
            return component
        assert time.monotonic() < end, f"{name} did not come back in {timeout_s:.0f} s: {component}"
        time.sleep(0.05)


def listening(*pids: int) -> set[tuple[str, int]]:
    """Addresses and ports where these processes and all below them accept connections.

    Workers of Airflow let nobody but root look into them, as they hold tokens. Where one is among the processes, what
    any such process of this user listens on is counted, too.
    """
    found: set[tuple[str, int]] = set()
    for pid in pids:
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            try:
                found |= _addresses(member.net_connections("inet"))
            except psutil.NoSuchProcess:
                pass
            except psutil.AccessDenied:  # also of one that is just ending
                found |= _hidden_listeners()
    return found


def _hidden_listeners() -> set[tuple[str, int]]:
    """Where processes of this user listen that do not say what they have open."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    own = {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and int(line[7]) == os.getuid()}
    of_nobody = [s for s in psutil.net_connections("inet") if s.pid is None]
    return {each for each in _addresses(of_nobody) if each[1] in own}


def _addresses(sockets: Sequence[Any]) -> set[tuple[str, int]]:
    """Of those that accept connections."""
    return {(s.laddr.ip, s.laddr.port) for s in sockets if s.laddr and s.status == psutil.CONN_LISTEN}


def free_pair() -> int:
    """The first of two ports that nobody has."""
    while True:
        (port,) = free_ports(1)
        if is_free(port + 1):
            return port


def reachable(home: Path) -> Path:
    """Lets PostgreSQL in, which does not run as root: temporary folders are closed to others."""
    if os.geteuid() == 0:
        home.chmod(0o711)
    return home


def settled_end_offsets(bootstrap: Kafka, topics: Sequence[str], *, timeout_s: float = 60.0) -> dict[Position, int]:
    """The ends, once no transaction is open: after this, a `read_committed` reader reaches all that was committed.

    A commit returns before the broker has moved the end that such readers see.

    Raises:
        KafkaReadError: a transaction stays open.
    """
    deadline = clock.ticks_s() + timeout_s
    while (ends := end_offsets(bootstrap, topics)) != end_offsets(bootstrap, topics, committed=False):
        if clock.ticks_s() > deadline:
            raise KafkaReadError(
                f"A transaction is still open on {', '.join(topics)} after {timeout_s:.0f} s.",
                hint="a task that died left it; it ends when the pipeline runs again, or after 10 minutes",
            )
        time.sleep(0.02)
    return ends


def read_all(bootstrap: Kafka, *topics: str, committed: bool = True) -> list[Message]:
    """Every record of some topics, by topic, partition and offset.

    Args:
        committed: those that a `read_committed` reader sees, else all.
    """
    ends = settled_end_offsets(bootstrap, topics) if committed else end_offsets(bootstrap, topics, committed=False)
    begins = begin_offsets(bootstrap, topics)
    wanted = [TopicPartition(t, p, begins[t, p]) for (t, p), end in sorted(ends.items()) if end > begins[t, p]]
    consumer = make(
        Consumer,
        bootstrap,
        {
            "group.id": "deltaworks-tests",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        },
    )
    found: list[Message] = []
    left = {(at.topic, at.partition) for at in wanted}
    try:
        consumer.assign(wanted)
        while left:
            message = consumer.poll(30)
            assert message is not None, f"the end of {left} was not reached in 30 s"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard((str(message.topic()), int(message.partition() or 0)))
            else:
                raise AssertionError(error.str())
    finally:
        consumer.close()
    return sorted(found, key=lambda m: (m.topic(), m.partition(), m.offset()))


def password_of(settings: Settings, user: str) -> str:
    """The password of a user of the stack's PostgreSQL."""
    lines = settings.pgpass.read_text().splitlines()
    return next(password for *_, name, password in (line.split(":") for line in lines) if name == user)
