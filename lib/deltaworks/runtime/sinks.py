"""The protocol of everything that a task writes to, and authors' sinks as one implementation of it.

`KafkaSink` and `TableSink` are the others; `TaskCollector` runs all of them. A batch that fails is aborted and runs
again with the same records; each sink recognises what it has committed already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from deltaworks.errors import DeltaworksError, SinkError
from deltaworks.faults import reach
from deltaworks.kafka.transactional import is_committed
from deltaworks.kernel.records import Rows, SinkRecords
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.topology.external import EXTERNAL
from deltaworks.topology.nodes import CustomSink
from deltaworks.topology.plan import Plan
from deltaworks.topology.sinks import AnySink, RefusedRecord, SinkBatch, SinkTask, SinkWriter
from deltaworks.topology.stages import Stage

_log = logging.getLogger(__name__)


class TaskSink(Protocol):
    """Takes one kind of output of a task. `begin`, then `prepare` and `commit`, or `abort`, bracket a batch."""

    def begin(self, batch: SinkBatch, known: int) -> None:
        """
        Args:
            batch: what follows belongs to it; what is left of an unfinished one is dropped.
            known: the last batch that is known to be committed as this stream means it.
        """

    def step(self, batch_id: int) -> None:
        """Begins a batch, one of several that a replay commits together."""

    def prepare(self) -> list[TableWrite]:
        """Writes what is not committed yet, for nobody to see; the sinks of a task commit after all have prepared.

        Returns:
            Files that the driver commits to tables.
        """

    def commit(self) -> None:
        """Makes what was prepared visible and durable; a batch that was committed before stays as it is."""

    def abort(self) -> None:
        """Drops what is not committed."""

    def close(self) -> None:
        """Closes connections and files."""


class AuthorSinks:
    """`TaskSink` of all sinks that an author has written, in one task.

    Records wait until the end of the batch, then go to the writers. A committed batch is recognised by its number and
    the digest of its intent, by the same rule as Kafka transactions.

    Args:
        sinks: by name; records for others are dropped.
        task: who writes to the sink of a name.
    """

    def __init__(self, sinks: Iterable[CustomSink], task: Callable[[str], SinkTask]) -> None:
        self._sinks: dict[str, AnySink] = {node.name: node.sink for node in sinks}
        self._task = task
        self._writers: dict[str, SinkWriter[Any, Any]] = {}
        self._rows: dict[str, SinkRecords] = {}
        self._open: list[str] = []
        """The sinks that have written something and not committed it."""
        self.refused: list[RefusedRecord[Any, Any]] = []
        """The records of the batch that a sink has refused."""
        self._batch, self._known = SinkBatch(-1, ""), -1

    def begin(self, batch: SinkBatch, known: int) -> None:
        self._batch, self._known = batch, known
        self.refused = []
        self._forget()

    def step(self, batch_id: int) -> None: ...

    def rows(self, sink: str) -> Rows:
        """Takes the records of a sink; those of a sink that is not called are dropped."""
        return self._rows.setdefault(sink, SinkRecords())

    def prepare(self) -> list[TableWrite]:
        """Writes what is not committed yet, for nobody to see; what sinks refuse is in `refused`.

        Raises:
            SinkError: a sink has failed.
            IntentError: it has committed something else under this batch.
        """
        for name, rows in self._rows.items():
            if name not in self._sinks or not rows.records:
                continue
            with self._blamed(name):
                if name not in self._writers:
                    self._writers[name] = self._sinks[name].open(self._task(name))
                writer = self._writers[name]
                self._open.append(name)
                done = writer.committed()
                if is_committed(done, self._batch.batch, self._batch.intent, self._known, self._task(name).id):
                    writer.abort()  # it may hold a lock
                    self._open.remove(name)
                    continue
                refused = writer.write(self._batch, rows.records) or ()
                if refused and (done is not None or any(each.record.as_read is None for each in refused)):
                    raise SinkError(
                        f"Sink '{name}' refuses records, which it may not.",
                        hint="it needs may_refuse = True, and committed() has to be None; see deltaworks.SinkWriter",
                    )
                self.refused += refused
                writer.prepare()
            reach("sink.written")
        return []

    def commit(self) -> None:
        """Makes what was prepared visible, one sink after the other.

        Raises:
            SinkError: a sink has failed; those before it have committed, and will be recognised.
        """
        while self._open:
            name = self._open[0]
            reach("sink.before_commit")
            with self._blamed(name):
                self._writers[name].commit()
            del self._open[0]
            reach("sink.after_commit")
        self._forget()

    def abort(self) -> None:
        """Drops what is not committed. A writer that cannot do that is closed, and the next batch opens another one."""
        self._forget()
        for name in self._open:
            try:
                self._writers[name].abort()
            except Exception as error:
                _log.warning("sink '%s' could not abort: %s", name, error)
                self._close(name)
        self._open = []

    def close(self) -> None:
        """Drops what is not committed, and closes all writers."""
        self.abort()
        for name in list(self._writers):
            self._close(name)

    def _forget(self) -> None:
        for rows in self._rows.values():
            rows.records = []

    def _close(self, name: str) -> None:
        writer = self._writers.pop(name, None)
        if writer is None:
            return
        try:
            writer.close()
        except Exception as error:
            _log.warning("sink '%s' could not be closed: %s", name, error)

    @contextmanager
    def _blamed(self, name: str) -> Iterator[None]:
        try:
            yield
        except DeltaworksError:
            raise
        except Exception as error:
            raise SinkError(
                f"Sink '{name}' failed in batch {self._batch.batch}: {type(error).__name__}: {error}",
                hint="the batch was aborted and runs again; see the sink's own documentation if it fails every time",
            ) from error


def kept(plan: Plan) -> str:
    """Which of the author's own sinks keep what they had when a replay is published, to follow what was done; empty:
    none. `control.sink_corrections` tells of those for other systems."""
    own = [node for node in plan.nodes if isinstance(node, CustomSink) and not isinstance(node.sink, EXTERNAL)]
    names = [f"'{node.name}'" for node in own if not node.in_replay]
    if not names:
        return ""
    what = f"sink {names[0]} keeps" if len(names) == 1 else f"sinks {', '.join(names)} keep"
    return f"; {what} what was there before (docs/sinks.md#tests-and-replays)"


def sinks_of(stage: Stage, *, replay: bool = False) -> list[CustomSink]:
    """The authors' sinks of a stage; in a replay only those whose author allows it."""
    return [node for node in stage.nodes if isinstance(node, CustomSink) and (node.in_replay or not replay)]
