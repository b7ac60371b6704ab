"""The process of the supervisor: `python -m deltaworks.control.supervisor.server`.

It is a component of the stack, or whoever needs it starts it. One thread waits for all events: questions, ends of
drivers (a pidfd each, so it learns of an end at once, whoever the parent is), and the time of the next look. Looks and
answers run in threads of a pool, with one look per stream at a time.

As a component of the stack, it takes over from a running supervisor: it asks that one to leave and adopts its drivers.
So a newer version of deltaworks takes effect, and two supervisors never work on one home.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import queue
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deltaworks import clock, home, processes
from deltaworks.control.launchers.base import DriverSpec, ExternalId
from deltaworks.control.launchers.local import KIND, LocalLauncher, driver_command, generation_of
from deltaworks.control.lease import ProcessId
from deltaworks.control.overview import overview
from deltaworks.control.supervisor import address, client, messages
from deltaworks.control.supervisor.address import Address
from deltaworks.control.supervisor.keeping import ROUND_S, SOON_S, Keeper
from deltaworks.control.supervisor.messages import (
    About,
    Answer,
    AskAbout,
    AskForOverview,
    Done,
    Envelope,
    Hello,
    Launch,
    Leave,
    Refused,
)
from deltaworks.errors import ControlUnavailableError, DeltaworksError, StackError
from deltaworks.files import lock
from deltaworks.processes import Registered
from deltaworks.settings import Settings

_LOCK = "supervisor.lock"
_TAKE_OVER_S = 20.0
_POLL_S = 0.02
_QUESTION_S = 10.0
_THREADS = 32
_DRAIN_S = 60.0
_log = logging.getLogger("deltaworks.supervisor")


class Supervisor:
    """Holds the drivers of a home until it is told to leave.

    Args:
        settings: settings of the home, and of drivers that it restarts.
        command: makes the command line of a driver; replaced in tests.
        drains: a SIGTERM also stops the drivers; for a container, whose drivers cannot outlive this process.
    """

    def __init__(
        self,
        settings: Settings,
        command: Callable[[DriverSpec], Sequence[str]] = driver_command,
        *,
        drains: bool = False,
    ) -> None:
        self._settings = settings
        self._keeper = Keeper(settings, lambda settings, name: LocalLauncher(settings, command, self._start))
        self._process = ProcessId.of(os.getpid())
        self._token = secrets.token_urlsafe(32)
        self._selector = selectors.DefaultSelector()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="supervisor")
        self._launching = threading.Lock()
        self._told: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._held: dict[int, int] = {}
        """The pidfd of each driver, by pid."""
        self._due: dict[str, float] = {}
        """When to look at each stream next, in ticks."""
        self._looking: set[str] = set()
        self._round_due = 0.0
        self._registry_away = False
        self._told_to_end = self._drain if drains else self._leave
        self._drained_by: float | None = None
        """The deadline for drivers to stop; None: they keep running."""
        self._leaving = False

    def run(self) -> None:
        """Runs until it is told to leave; then nothing is being started, and no more questions are answered."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._tell(self._told_to_end))
        with socket.create_server((self._settings.supervisor_host, 0), backlog=64) as listener:
            host, port = listener.getsockname()[:2]
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
            self._selector.register(self._woken, selectors.EVENT_READ, self._hear)
            where = Address(
                host=host, port=port, token=self._token, process=self._process, machine=socket.gethostname()
            )
            self._adopt()
            address.write(self._settings.run, where)
            _log.info("listens on %s:%d, holds %d drivers", host, port, len(self._held))
            try:
                while not self._leaving:
                    for key, _ in self._selector.select(self._patience_s()):
                        key.data()
                    self._do_what_is_due()
            finally:
                address.remove(self._settings.run, self._process)
                if self._drained_by is None:
                    self._launching.acquire()  # for good: a start in progress is registered, and none follows

    # ---- In the main thread

    def _patience_s(self) -> float:
        if self._drained_by is not None:
            return max(0.0, self._drained_by - clock.ticks_s())
        waiting = [at for name, at in self._due.items() if name not in self._looking]
        return max(0.0, min([self._round_due, *waiting]) - clock.ticks_s())

    def _do_what_is_due(self) -> None:
        now = clock.ticks_s()
        if self._drained_by is not None:
            self._leaving = self._leaving or not self._held or now >= self._drained_by
            return
        if now >= self._round_due:
            self._round_due = now + (SOON_S if self._registry_away else ROUND_S)
            if not self._is_the_one():
                _log.info("another supervisor has taken over, or the home is gone")
                self._leaving = True
                return
            self._adopt()
            self._pool.submit(self._begin_round)
        for name in [name for name, at in self._due.items() if now >= at and name not in self._looking]:
            del self._due[name]
            self._looking.add(name)
            self._pool.submit(self._look, name)

    def _is_the_one(self) -> bool:
        found = address.read(self._settings.run)
        return found is not None and found.process == self._process

    def _adopt(self) -> None:
        """Holds every driver of the home, whoever started it."""
        for entry in processes.registered(self._settings.run):
            if entry.kind == KIND and entry.pid not in self._held:
                self._hold(entry)

    def _launched(self, entry: Registered) -> None:
        self._adopt()
        self._look_at(entry.name, SOON_S)  # so that it is known what should run if the registry goes away

    def _hold(self, entry: Registered) -> None:
        try:
            handle = os.pidfd_open(entry.pid)
        except ProcessLookupError:
            return
        if not entry.alive:  # checked after the handle was opened, so both mean the same process
            os.close(handle)
            return
        self._held[entry.pid] = handle
        self._selector.register(handle, selectors.EVENT_READ, lambda: self._ended(entry))

    def _ended(self, entry: Registered) -> None:
        handle = self._held.pop(entry.pid)
        self._selector.unregister(handle)
        os.close(handle)
        how = _reap(entry.pid)
        _log.info("%s: process %d ended%s", entry.name, entry.pid, f" ({how})" if how else "")
        self._pool.submit(self._note_end, entry, how)

    def _look_at(self, name: str, in_s: float = 0.0) -> None:
        at = clock.ticks_s() + in_s
        self._due[name] = min(at, self._due.get(name, at))

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self._pool.submit(self._answer, connection)

    def _hear(self) -> None:
        self._woken.recv(4096)
        with contextlib.suppress(queue.Empty):
            while True:
                self._told.get_nowait()()

    def _leave(self) -> None:
        self._leaving = True

    def _drain(self) -> None:
        """Stops restarting drivers; the container kills those that do not stop."""
        if self._drained_by is None:
            _log.info("stopping %d drivers", len(self._held))
            self._drained_by = clock.ticks_s() + _DRAIN_S
            self._launching.acquire()  # for good
            self._adopt()
            for handle in self._held.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGTERM)

    # ---- In other threads

    def _tell(self, what: Callable[[], None]) -> None:
        """Lets the main thread do something."""
        self._told.put(what)
        self._wake.send(b"\0")

    def _begin_round(self) -> None:
        with self._noting_the_registry():
            for name in self._keeper.streams():
                self._tell(lambda name=name: self._look_at(name))  # type: ignore[misc]

    def _note_end(self, entry: Registered, how: str | None) -> None:
        generation = generation_of(entry.command)
        if how is not None and generation is not None:
            with self._noting_the_registry():
                self._keeper.note_end(entry.name, generation, f"its process was killed ({how})")
        self._tell(lambda: self._look_at(entry.name))

    def _look(self, name: str) -> None:
        again_s = SOON_S
        try:
            with self._noting_the_registry():
                again_s = self._keeper.look(name)
        finally:
            self._tell(lambda: self._looked(name, again_s))

    def _looked(self, name: str, again_s: float) -> None:
        self._looking.discard(name)
        self._look_at(name, again_s)

    @contextmanager
    def _noting_the_registry(self) -> Iterator[None]:
        """Logs once that the registry is down and once that it is back; logs any other error, and looks go on."""
        try:
            yield
        except ControlUnavailableError as error:
            if not self._registry_away:
                self._registry_away = True
                _log.warning("%s Drivers keep running; dead ones are restarted as last requested.", error.message)
        except Exception:
            _log.exception("a look failed")
        else:
            if self._registry_away:
                self._registry_away = False
                _log.info("the registry is back")

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_QUESTION_S)
            line = messages.receive(connection)
            answer, leaves = self._answer_to(line)
            messages.send(connection, answer)
            if leaves:  # after the answer is sent
                self._tell(self._leave)

    def _answer_to(self, line: bytes) -> tuple[Answer, bool]:
        """The answer, and whether to leave afterwards."""
        try:
            envelope = msgspec.json.decode(line, type=Envelope)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = "does another version of deltaworks run? Try `deltaworks up`"
            return Refused(f"The supervisor does not understand the question: {error}.", hint), False
        if not hmac.compare_digest(envelope.token.encode(), self._token.encode()):
            return Refused("The supervisor does not know this token."), False
        match envelope.question:
            case Hello():
                return Done(), False
            case Leave():
                return Done(), True
            case Launch() as question:
                return self._launch(question), False
            case AskAbout(what, driver):
                return self._about(what, driver), False
            case AskForOverview() as question:
                return self._overview(question), False

    def _launch(self, question: Launch) -> Answer:
        try:
            started = self._start(
                name=question.name,
                kind=question.kind,
                command=question.command,
                log=Path(question.log),
                env=question.environment,
            )
        except (DeltaworksError, OSError) as error:
            return Refused(f"The supervisor cannot start {question.name!r}: {error}")
        return Done(started)

    def _overview(self, question: AskForOverview) -> Answer:
        if question.registry != messages.digest_of_registry(self._settings):
            return Refused("The supervisor has another registry.")
        try:
            return Done(overview=overview(self._settings, question.pipeline, launchers=self._keeper.launchers))
        except (DeltaworksError, OSError) as error:
            return Refused(f"{type(error).__name__}: {error}")

    def _about(self, what: About, driver: ExternalId) -> Answer:
        try:
            return Done(fact=getattr(LocalLauncher(self._settings), what)(driver))
        except (DeltaworksError, OSError, KeyError, TypeError) as error:
            return Refused(f"{type(error).__name__}: {error}")

    def _start(self, *, name: str, kind: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Registered:
        """Starts and registers a driver, without leaving in between."""
        with self._launching:
            entry = processes.launch(self._settings.run, name=name, kind=kind, command=command, log=log, env=env)
        self._tell(lambda: self._launched(entry))
        return entry


def _reap(pid: int) -> str | None:
    """The signal that killed a process, such as `SIGKILL`; None if none did or it is not our child."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if not ended or not os.WIFSIGNALED(status):
        return None
    return signal.Signals(os.WTERMSIG(status)).name


@contextmanager
def _alone(settings: Settings, *, takes_over: bool) -> Iterator[bool]:
    """Makes this the only supervisor of a home and asks the previous one to leave; yields False if that one stays."""
    settings.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(settings.run / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    end, asked = clock.ticks_s() + _TAKE_OVER_S, False
    while True:
        if lock(handle):
            break
        if takes_over:
            asked = asked or client.leave(settings)
        elif client.answers(settings):
            yield False
            return
        if clock.ticks_s() > end:
            raise StackError(
                f"Another supervisor holds {settings.run / _LOCK} and does not leave.",
                hint=f"end it; its log is {client.log_of(settings)}",
            )
        time.sleep(_POLL_S)
    yield True


def main(command: Callable[[DriverSpec], Sequence[str]] = driver_command) -> None:
    """Runs the supervisor of the home in the environment."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = Settings.from_environment()
    try:
        home.make(settings)
        with _alone(settings, takes_over=client.IF_NONE not in sys.argv) as is_the_one:
            if is_the_one:
                Supervisor(settings, command, drains=client.DRAIN in sys.argv).run()
    except DeltaworksError as error:
        sys.exit(f"error: {error}")
    entry = processes.find(settings.run, client.NAME)
    if entry is not None and entry.pid == os.getpid():
        processes.forget(settings.run, client.NAME)
    _log.info("leaves")
    logging.shutdown()
    os._exit(0)  # the next supervisor resumes the work of other threads; waiting for them would take minutes


if __name__ == "__main__":
    main()
