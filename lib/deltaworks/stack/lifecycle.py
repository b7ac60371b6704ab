"""The functions `up`, `down`, `status` and `log_of`, with which the command line and the tests control the stack.

`up` prepares the components and has the runner start them. `down` stops every process that is registered in
`<home>/run`, and what a killed runner left behind.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from deltaworks import clock, home, listeners, processes
from deltaworks.control.supervisor import client
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import alone
from deltaworks.names import FILE
from deltaworks.settings import Settings
from deltaworks.stack import (
    airflow,
    connect,
    monitoring,
    opensearch,
    ports,
    runner,
    schema_registry,
    seaweedfs,
    source_mariadb,
    source_postgres,
    spark,
)
from deltaworks.stack.components import Component, Report
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.native import NativeHost
from deltaworks.stack.sql import server as sql
from deltaworks.stack.state import ComponentState, RunnerState, read_state, read_wanted, write_wanted

_STOP_ORDER = {client.NAME: -1, "pipeline": 0, "runner": 9}
"""The order of stopping, 5 for other kinds: first whatever would restart others, then readers before what they read."""
_PATIENCE_S = {"pipeline": 60.0, "runner": 90.0}
"""Timeouts for stopping: a pipeline first finishes its batch, and a runner first stops its components."""
_POLL_S = 0.05
_MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Running:
    """One component that is ready."""

    name: str
    pid: int
    ports: tuple[int, ...]
    started_now: bool
    """Whether this call started it; if not, it was already running."""
    ready_s: float
    """Seconds from its start until it was ready."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The requested components, ready to be used."""

    components: Mapping[str, Running]
    credentials: Credentials | None
    """The login for Airflow, if it is among them."""
    sql: Credentials | None
    """The login for the SQL server, if it is among them."""
    s3: Credentials | None
    """The keys for the object store, if it is among them."""
    schema_registry: Credentials | None
    """The login for the schema registry, if it is among them."""
    connect: Credentials | None
    """The login for Kafka Connect, if it is among them."""
    spark: Credentials | None
    """The secret of the Spark cluster, if it is among them."""
    source_postgres: Credentials | None
    """The application's login for the PostgreSQL whose changes connectors read, if it is among them."""
    source_mariadb: Credentials | None
    """Likewise for the MariaDB."""
    opensearch: str | None
    """Where clients reach OpenSearch, if it is among them."""
    prometheus: str | None
    """Where the pages of Prometheus are, if it is among them."""
    alertmanager: str | None
    """Likewise for its Alertmanager."""
    seconds: float
    """Duration of the call."""

    def __getitem__(self, name: str) -> Running:
        return self.components[name]

    @property
    def started(self) -> list[str]:
        """The components that this call started."""
        return [component.name for component in self.components.values() if component.started_now]


@dataclass(frozen=True, kw_only=True)
class Status:
    """The current status of one process."""

    name: str
    kind: str
    state: str
    """`running`; `dead`: it ended without being stopped; `remains`: only its children are left. For a component, the
    runner's state: `waiting`, `starting`, `ready`, `done`, `pausing`, `stopping`."""
    pid: int
    memory_mb: int
    """Memory of all its processes; pages that they share count in each."""
    ports: tuple[int, ...]
    """Its ports that answer; none if it has ended, whoever answers there."""
    log: str
    restarts: int = 0


def up(
    settings: Settings,
    report: Report = lambda _: None,
    *,
    only: Sequence[str] | None = None,
    tethered: bool = False,
) -> Stack:
    """Starts components unless they run, and waits until they are ready.

    Args:
        only: the components to start, with what they need; None: all.
        tethered: the components end with the process that starts the runner; for tests.

    Raises:
        StackError: a port is taken, the disk is full, jars are missing, or a component ended or does not answer. What
            this call started is then stopped.
        ConfigurationError: a component is unknown, no Java or PostgreSQL is usable, or a jar does not match the lock.
    """
    begin = clock.ticks_s()
    host = NativeHost.of(settings)
    chosen = host.components.chosen(only)
    home.make(settings)
    with alone(settings.home):
        found = _runner(settings)
        if found is None:
            _clear(settings, report)
        before = read_wanted(settings.run) if found is not None else []
        _require_same_ports(host, chosen, before)
        new = [component for component in chosen if component.name not in before]
        login = airflow.credentials(settings) if any(c.software == "airflow" for c in chosen) else None
        reader = sql.credentials(settings) if any(c.ready == "sql" for c in chosen) else None
        keys = seaweedfs.credentials(settings) if any(c.ready == "s3" for c in chosen) else None
        schemas = schema_registry.credentials(settings) if any(c.ready == "schemas" for c in chosen) else None
        worker = connect.credentials(settings) if any(c.ready == "connect" for c in chosen) else None
        secret = spark.credentials(settings) if any(c.ready == "spark" for c in chosen) else None
        names = {component.name for component in chosen}
        try:
            _prepare(host, new, report)
            if new:
                write_wanted(settings.run, [*before, *(component.name for component in new)])
            entry = _start_runner(settings, tethered=tethered) if found is None else found
        except BaseException:
            _tidy(settings)
            raise
    try:
        state = _wait_until_ready(host, chosen, new, entry, report)
    except BaseException:
        _withdraw(settings, new, entry if found is None else None)
        raise
    return Stack(
        components={
            component.name: _running(found_state, started_now=component in new)
            for component in chosen
            if (found_state := state.find(component.name)) is not None
        },
        credentials=login,
        sql=reader,
        s3=keys,
        schema_registry=schemas,
        connect=worker,
        spark=secret,
        source_postgres=source_postgres.credentials(settings) if source_postgres.NAME in names else None,
        source_mariadb=source_mariadb.credentials(settings) if source_mariadb.NAME in names else None,
        opensearch=opensearch.url(settings) if opensearch.NAME in names else None,
        prometheus=monitoring.url(settings, monitoring.PROMETHEUS) if monitoring.PROMETHEUS in names else None,
        alertmanager=monitoring.url(settings, monitoring.ALERTMANAGER) if monitoring.ALERTMANAGER in names else None,
        seconds=clock.ticks_s() - begin,
    )


def down(settings: Settings, report: Report = lambda _: None, *, delete_data: bool = False) -> list[str]:
    """Stops everything that was started, pipelines first; leaves no process, port or temporary file.

    Args:
        delete_data: also delete what deltaworks made in the home: topics, checkpoints, tables, logs.

    Returns:
        The names of what was stopped.

    Raises:
        ConfigurationError: deltaworks may not have made the home; nothing was stopped or deleted.
        StackError: something cannot be stopped or deleted.
    """
    if not settings.home.is_dir():
        return []
    if delete_data:
        home.require_marked(settings)
    with alone(settings.home):
        stopped = _stop_all(settings, report)
        stopped += _stop_all(settings, report)  # what Airflow has brought back before it was stopped itself
        seaweedfs.tidy(settings)
        spark.tidy(settings)
        shutil.rmtree(settings.temporary, ignore_errors=True)
        shutil.rmtree(settings.run, ignore_errors=True)
        if delete_data:
            home.delete(settings)
    return list(dict.fromkeys(stopped))


def status(settings: Settings) -> list[Status]:
    """The status of everything that was started and not stopped."""
    found = []
    for entry in processes.registered(settings.run):
        if entry.kind == "runner" and (state := _state_of(settings, entry)) is not None:
            host = NativeHost.of(settings)
            known = host.components.by_name
            found += [_component_status(host, c, entry) for c in state.components if not known[c.name].is_step]
        found.append(_status(entry))
    return found


def log_of(settings: Settings, name: str) -> Path:
    """The log file of a process, running or not.

    Raises:
        ConfigurationError: there is no log of that name.
    """
    file = settings.logs / f"{FILE.checked(name, settings.logs)}.log"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in settings.logs.glob("*.log"))) or "none yet"
        raise ConfigurationError(f"There is no log of {name!r} in {settings.logs}.", hint=f"logs: {known}")
    return file


def _stop_all(settings: Settings, report: Report) -> list[str]:
    """Stops what is registered now; returns the names."""
    stopped = _stop_supervisor(settings, report)
    for entry in sorted(processes.registered(settings.run), key=lambda e: (_STOP_ORDER.get(e.kind, 5), e.name)):
        if entry.kind == "runner":
            stopped += _stop_runner(settings, entry, report)
        elif entry.members():
            report(f"{entry.name}: stopping process {entry.pid}")
            polite = processes.stop(settings.run, entry, timeout_s=_PATIENCE_S.get(entry.kind, 20.0))
            report(f"{entry.name}: stopped{'' if polite else ' (killed, since it did not end by itself)'}")
            stopped.append(entry.name)
        else:
            processes.forget(settings.run, entry.name)
    return stopped


def _runner(settings: Settings) -> processes.Registered | None:
    """The running runner, if any."""
    entry = processes.find(settings.run, runner.NAME)
    return entry if entry is not None and entry.alive else None


def _prepare(host: NativeHost, new: Sequence[Component], report: Report) -> None:
    for component in new:
        host.require_room_and_ports(component)
    needed_mb, free_mb = sum(c.memory_mb for c in new), psutil.virtual_memory().available // _MB
    if needed_mb > free_mb:
        report(f"memory: {free_mb} MB free, these components may need {needed_mb} MB")
    host.settings.temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
    for component in new:
        host.prepare(component, report)


def _start_runner(settings: Settings, *, tethered: bool) -> processes.Registered:
    return processes.launch(
        settings.run,
        name=runner.NAME,
        kind="runner",
        command=[sys.executable, "-P", "-m", listeners.RUNNER],
        log=settings.logs / f"{runner.NAME}.log",
        env=settings.process_environment() | settings.connector_variables(),
        tethered=tethered,
    )


def _require_same_ports(host: NativeHost, chosen: Sequence[Component], before: Sequence[str]) -> None:
    state = read_state(host.settings.run)
    for component in chosen:
        there = state.find(component.name) if state is not None and component.name in before else None
        if there is not None and there.ports != host.ports(component):
            raise StackError(
                f"{component.name} runs on port {', '.join(map(str, there.ports))}; the settings say "
                f"{', '.join(map(str, host.ports(component)))}.",
                hint="stop it first (deltaworks down), or restore the ports that it was started with",
            )


def _wait_until_ready(
    host: NativeHost,
    chosen: Sequence[Component],
    new: Sequence[Component],
    entry: processes.Registered,
    report: Report,
) -> RunnerState:
    """Waits until all components are ready. A new component that ends is an error; the runner restarts any other."""
    begin, told = clock.ticks_s(), ""
    limit_s = sum(component.ready_timeout_s for component in chosen) + 10
    while True:
        state = _state_of(host.settings, entry)
        if state is not None:
            found = [component for c in chosen if (component := state.find(c.name)) is not None]
            waiting = [component for component in found if component.phase not in ("ready", "done")]
            if len(found) == len(chosen) and not waiting:
                return state
            for component in waiting:
                if component.phase == "pausing" and component.name in {c.name for c in new}:
                    raise _ended(component)
            line = ", ".join(f"{c.name} {c.phase}" for c in waiting if c.phase != "waiting") or "starting"
            if line != told:
                told = line
                report(line)
        if not entry.alive:
            raise StackError(
                f"The process runner (process {entry.pid}) ended.",
                log=processes.last_lines(Path(entry.log)),
                hint=f"was there a `down` meanwhile? See the full log in {entry.log}",
            )
        if clock.ticks_s() - begin > limit_s:
            raise StackError(f"After {limit_s:.0f} s: {told}.", hint=f"logs are in {host.settings.logs}")
        time.sleep(_POLL_S)


def _ended(component: ComponentState) -> StackError:
    return StackError(
        f"{component.name} (process {component.pid}) ended while it was starting: {component.last_exit}.",
        log=processes.last_lines(Path(component.log)),
        hint=f"see the full log in {component.log}",
    )


def _running(state: ComponentState, *, started_now: bool) -> Running:
    return Running(
        name=state.name, pid=state.pid, ports=state.ports, started_now=started_now, ready_s=state.ready_s or 0.0
    )


def _withdraw(settings: Settings, new: Sequence[Component], own: processes.Registered | None) -> None:
    """Stops what a failed `up` started: its own runner with everything, or its components of an older runner."""
    names = {component.name for component in new}
    with alone(settings.home):
        if own is not None:
            _stop_runner(settings, own, lambda _: None)
            _tidy(settings)
            return
        _stop_components(settings, names)


def _stop_components(settings: Settings, names: Collection[str]) -> None:
    """Has the runner stop these components and keep the others; returns when they are stopped."""
    write_wanted(settings.run, [name for name in read_wanted(settings.run) if name not in names])
    end = clock.ticks_s() + _PATIENCE_S["runner"]
    while (entry := _runner(settings)) is not None and clock.ticks_s() < end:
        state = _state_of(settings, entry)
        if state is not None and not any(state.find(name) for name in names):
            return
        time.sleep(_POLL_S)


def _stop_supervisor(settings: Settings, report: Report) -> list[str]:
    """Stops the supervisor that the runner keeps; returns its name if there was one."""
    if _runner(settings) is None or client.NAME not in read_wanted(settings.run):
        return []
    report(f"{client.NAME}: stopping")
    _stop_components(settings, {client.NAME})
    return [client.NAME]


def _stop_runner(settings: Settings, entry: processes.Registered, report: Report) -> list[str]:
    """Stops a runner, or what a killed one left; returns the names of the components that were running."""
    state = _state_of(settings, entry)
    names = [c.name for c in state.components if _members(settings, c)] if state is not None else []
    if entry.members():
        report(f"stopping {', '.join(reversed(names)) or 'the process runner'}")
        processes.stop(settings.run, entry, timeout_s=_PATIENCE_S["runner"])
    _clear(settings, report)
    report("stopped")
    return list(reversed(names))


def _clear(settings: Settings, report: Report) -> None:
    """Ends what is left of a killed runner: the kernel has signalled its processes, but some take a while to end."""
    state = read_state(settings.run)
    if state is not None:
        end = clock.ticks_s() + 10
        while left := [process for c in state.components for process in _members(settings, c)]:
            if clock.ticks_s() > end:
                report(f"killing what is left: {', '.join(str(process.pid) for process in left)}")
                _kill(left)
                break
            time.sleep(_POLL_S)
    processes.forget(settings.run, runner.NAME)
    for name in ("runner.state", "runner.wanted"):
        (settings.run / name).unlink(missing_ok=True)


def _kill(left: Sequence[psutil.Process]) -> None:
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(left, timeout=5)
    if alive:
        pids = ", ".join(str(process.pid) for process in alive)
        raise StackError(f"{pids} still run after SIGKILL.", hint=f"look at them: ps -fp {pids}")


def _tidy(settings: Settings) -> None:
    """Removes temporary files if no process is registered."""
    if not processes.registered(settings.run):
        shutil.rmtree(settings.temporary, ignore_errors=True)
        shutil.rmtree(settings.run, ignore_errors=True)


def _state_of(settings: Settings, entry: processes.Registered) -> RunnerState | None:
    """The state of a runner; None while it has not written any."""
    state = read_state(settings.run)
    return state if state is not None and state.pid == entry.pid else None


def _members(settings: Settings, component: ComponentState) -> list[psutil.Process]:
    if component.pid == 0:
        return []
    host = NativeHost.of(settings)
    known = host.components.by_name.get(component.name)
    return host.members(known, component.pid, component.started_s) if known is not None else []


def _component_status(host: NativeHost, component: ComponentState, entry: processes.Registered) -> Status:
    members = _members(host.settings, component)
    return Status(
        name=component.name,
        kind="component",
        state=component.phase if entry.alive else "remains" if members else "dead",
        pid=component.pid,
        memory_mb=_memory_mb(members),
        ports=tuple(port for port in component.ports if members and ports.answers(port)),
        log=component.log,
        restarts=component.restarts,
    )


def _status(entry: processes.Registered) -> Status:
    members = entry.members()
    alive = bool(members) and members[0].pid == entry.pid
    return Status(
        name=entry.name,
        kind=entry.kind,
        state="running" if alive else "remains" if members else "dead",
        pid=entry.pid,
        memory_mb=_memory_mb(members),
        ports=tuple(port for port in entry.ports if ports.answers(port)),
        log=entry.log,
    )


def _memory_mb(members: Iterable[psutil.Process]) -> int:
    """Memory of several processes; shared pages (forks, shared buffers) count once where the system tells (Linux)."""
    total = 0
    for process in members:
        try:
            full = process.memory_full_info()
        except psutil.Error:
            continue
        total += getattr(full, "pss", full.rss)
    return total // _MB
