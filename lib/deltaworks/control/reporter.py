"""Reports from a driver to the registry, and requests in return."""

from __future__ import annotations

import logging
import socket
import threading
from itertools import islice
from typing import Protocol

from deltaworks import clock
from deltaworks.control import batches
from deltaworks.control.batches import BatchRecord
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.model import DrainCommand
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError, FencedError
from deltaworks.settings import Settings

_CHUNK = 1_000
_log = logging.getLogger(__name__)


class Reporter(Protocol):
    """Reports to somebody; it never blocks or fails the driver, whatever happens there."""

    def beat(self, beat: Heartbeat) -> None:
        """Reports a new heartbeat."""

    def batch(self, record: BatchRecord, query_id: str) -> None:
        """Reports a batch that the checkpoint `query_id` committed."""

    def asked_to_drain(self) -> bool:
        """Whether somebody wants this generation to finish and stop.

        Raises:
            FencedError: a newer generation has taken over.
        """
        ...

    def close(self) -> None:
        """Reports what is left, for a short while."""


class SilentReporter:
    """Reports to nobody."""

    def beat(self, beat: Heartbeat) -> None:
        pass

    def batch(self, record: BatchRecord, query_id: str) -> None:
        pass

    def asked_to_drain(self) -> bool:
        return False

    def close(self) -> None:
        pass


class RegistryReporter:
    """Reports to the registry, from its own thread.

    - If heartbeats come faster than they can be written, only the latest is; a change of state is sent at once.
    - The batch record in the registry is a copy of the files (`control.batches`): what an outage or an earlier driver
      left out is read from there, in order, before anything new. So the copy never has a gap. A checkpoint that follows
      another one (`control.paths`) sends its own batches; earlier ones are there under the other's query id.
    - While the registry is down, it keeps trying, and logs this once.

    It does not stop a fenced driver, but reports the fence in `asked_to_drain`.
    """

    def __init__(
        self, settings: Settings, pipeline: str, generation: int, *, period_s: float = 1.0, close_s: float = 5.0
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._generation = generation
        self._period_s = period_s
        self._close_s = close_s
        self._paths = PipelinePaths.of(settings, pipeline)
        self._host = socket.gethostname()

        self._lock = threading.Lock()  # guards what follows
        self._latest: Heartbeat | None = None
        self._fresh: list[BatchRecord] = []
        self._query_id = ""
        self._drain = False
        self._fenced: FencedError | None = None

        self._wake = threading.Event()
        self._closing = threading.Event()
        self._away = False
        self._behind = True
        """Whether the files may hold batches that the registry does not have."""
        self._sent_beat: Heartbeat | None = None
        self._sent_batch = -1
        self._commands: list[DrainCommand] = []
        self._thread = threading.Thread(target=self._run, name="registry-reporter", daemon=True)
        self._thread.start()

    def beat(self, beat: Heartbeat) -> None:
        with self._lock:
            changed = self._latest is None or self._latest.state != beat.state
            self._latest = beat
            self._query_id = beat.query_id or self._query_id
        if changed:
            self._wake.set()

    def batch(self, record: BatchRecord, query_id: str) -> None:
        with self._lock:
            self._query_id = query_id
            if not self._behind:  # otherwise the files will be read anyway
                self._fresh.append(record)

    def asked_to_drain(self) -> bool:
        with self._lock:
            if self._fenced is not None:
                raise self._fenced
            return self._drain

    def close(self) -> None:
        """Reports what is left, for a short while."""
        self._closing.set()
        self._wake.set()
        self._thread.join(self._close_s)

    def _run(self) -> None:
        while self._fenced is None:
            begun = clock.ticks_s()
            last = self._closing.is_set()
            self._wake.clear()
            try:
                self._report(last)
            except ControlUnavailableError as error:
                self._notice_outage(error)
            except FencedError as error:
                with self._lock:
                    self._fenced = error
            except Exception:
                _log.exception("reporting to the registry failed; retrying")
                self._start_over()
            if last:
                return
            self._wake.wait(max(0.05, self._period_s - (clock.ticks_s() - begun)))

    def _report(self, last: bool) -> None:
        with self._lock:
            beat, query_id = self._latest, self._query_id
        if beat is None:
            return
        registry = Registry.of(self._settings)
        if beat is not self._sent_beat:  # a hanging driver must not look alive
            registry.beat(beat, host=self._host)  # first, because it takes the lease that the rest needs
            self._sent_beat = beat
        if query_id:
            self._send_batches(registry, query_id)
        for command in registry.take_commands(self._pipeline, self._generation):
            self._commands.append(command)
            with self._lock:
                self._drain = True
        if last:
            for command in self._commands:
                registry.command_done(command.id, beat.state)
        if self._away:
            self._away = False
            _log.warning("the registry is back; everything has been reported")

    def _send_batches(self, registry: Registry, query_id: str) -> None:
        with self._lock:
            catch_up, self._behind = self._behind, False
            fresh, self._fresh = self._fresh, []
        if catch_up:
            # Batches written from here on come through `batch`; a batch that comes both ways is sent once.
            known = registry.last_batch(self._pipeline, query_id)
            self._sent_batch = self._first_batch(query_id) - 1 if known is None else known
            missing = (record for record in batches.read(self._paths.batches) if record.batch > self._sent_batch)
            while chunk := list(islice(missing, _CHUNK)):
                self._send(registry, query_id, chunk)
        self._send(registry, query_id, [record for record in fresh if record.batch > self._sent_batch])

    def _first_batch(self, query_id: str) -> int:
        plan = stored_plan(self._paths.current.plan)
        return plan.first_batch if plan is not None and plan.query_id == query_id else 0

    def _send(self, registry: Registry, query_id: str, records: list[BatchRecord]) -> None:
        if records:
            registry.append_batches(self._pipeline, self._generation, query_id, records)
            self._sent_batch = records[-1].batch

    def _notice_outage(self, error: ControlUnavailableError) -> None:
        if not self._away:
            self._away = True
            _log.warning("%s The stream keeps running and reports later.", error.message)
        self._start_over()

    def _start_over(self) -> None:
        """Reads the files again, because it is unknown what has arrived."""
        self._sent_beat = None
        with self._lock:
            self._behind = True
            self._fresh = []
