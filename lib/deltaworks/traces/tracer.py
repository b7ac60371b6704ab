"""Who takes the figures of batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.options import INSTALL, TraceOptions

_log = logging.getLogger(__name__)


@contextmanager
def tracing(settings: Settings, pipeline: Pipeline, generation: int) -> Iterator[Tracer]:
    """A tracer that sends traces while the block runs, if the settings say where; only then is OpenTelemetry imported.

    A driver goes on without traces if they cannot be sent: one warning says why, and `MissingTracer` counts.

    Args:
        settings: of the home.
        pipeline: whose batches they are.
        generation: of the driver.
    """
    with ExitStack() as opened:
        yield _tracer(settings, pipeline, generation, opened)


def _tracer(settings: Settings, pipeline: Pipeline, generation: int, opened: ExitStack) -> Tracer:
    try:
        options = TraceOptions.of(settings, pipeline.name)
        if options is None:
            return NoTracer()
        from deltaworks.traces.export import traced

        interval_s = pipeline.trigger_interval.total_seconds()
        return opened.enter_context(traced(settings, pipeline.name, generation, options, interval_s=interval_s))
    except ConfigurationError as error:
        problem = error.message
    except ImportError as error:
        problem = f"{type(error).__name__} of OpenTelemetry ({INSTALL})."
    except Exception as error:  # its text may quote a header
        problem = f"{type(error).__name__} of OpenTelemetry."
    _log.warning("there are no traces of this driver: %s The stream goes on without them.", problem)
    return MissingTracer()


class Tracer(Protocol):
    """Takes figures of batches; it never blocks or fails the driver."""

    takes: bool
    """Whether it needs what tasks have done."""

    @property
    def waits(self) -> bool:
        """Whether it wants to know how long a batch took in Spark."""

    @property
    def dropped(self) -> int:
        """How many batches have no trace though they should."""

    def ended(self, batch: BatchFigures) -> None:
        """A batch has ended."""

    def failed(self, batch: BatchFigures) -> None:
        """A batch has failed, so the driver ends."""

    def spark_told(self, batch_id: int, phases: Mapping[str, float]) -> None:
        """Takes how many seconds the parts of the last batch took, as Spark says."""


class NoTracer:
    """Nobody takes them."""

    takes, waits, dropped = False, False, 0

    def ended(self, batch: BatchFigures) -> None:
        pass

    def failed(self, batch: BatchFigures) -> None:
        pass

    def spark_told(self, batch_id: int, phases: Mapping[str, float]) -> None:
        pass


class MissingTracer:
    """Stands for a tracer that could not be made: each batch is one without a trace, sampled or not."""

    takes, waits = False, False

    def __init__(self) -> None:
        self._dropped = 0

    @property
    def dropped(self) -> int:
        return self._dropped

    def ended(self, batch: BatchFigures) -> None:
        self._dropped += 1

    def failed(self, batch: BatchFigures) -> None:
        self._dropped += 1

    def spark_told(self, batch_id: int, phases: Mapping[str, float]) -> None:
        pass


class SamplingTracer:
    """Hands on the batches that are sampled, once Spark has told of them, and each that fails.

    A batch that ends before Spark has told of the one before it takes that one along: it goes without Spark's phases.

    Args:
        is_sampled: says so of a batch; always the same of the same batch.
        hand_on: takes the figures; it does not block.
        count_dropped: how many of those did not arrive.
    """

    takes = True

    def __init__(
        self,
        is_sampled: Callable[[BatchFigures], bool],
        hand_on: Callable[[BatchFigures], None],
        count_dropped: Callable[[], int],
    ) -> None:
        self._is_sampled, self._hand_on, self._count_dropped = is_sampled, hand_on, count_dropped
        self._lock = threading.Lock()  # batches end in another thread than Spark tells of them
        self._open: BatchFigures | None = None
        """The batch of which Spark has not told yet."""

    @property
    def waits(self) -> bool:
        return self._open is not None

    @property
    def dropped(self) -> int:
        return self._count_dropped()

    def ended(self, batch: BatchFigures) -> None:
        self._take(batch if self._is_sampled(batch) else None)

    def failed(self, batch: BatchFigures) -> None:
        self._take(None)
        self._hand_on(batch)

    def spark_told(self, batch_id: int, phases: Mapping[str, float]) -> None:
        with self._lock:
            batch = self._open
            if batch is None or batch.batch_id != batch_id:
                return
            self._open = None
        batch.spark_phases = phases
        self._hand_on(batch)

    def close(self) -> None:
        """Hands on what it has."""
        self._take(None)

    def _take(self, batch: BatchFigures | None) -> None:
        with self._lock:
            before, self._open = self._open, batch
        if before is not None:
            self._hand_on(before)
