"""The trigger of a supervising task: it waits for the end of one generation of a stream.

It observes and records; it never acts. So marking the task, clearing it or ending the triggerer has no effect on the
stream. There is no `on_kill` and no `cleanup` here, on purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from deltaworks import clock
from deltaworks.airflow.access import Access
from deltaworks.control.model import Observation
from deltaworks.settings import Settings

ENDED = frozenset({"stopped", "superseded", "failed", "dead", "stalled"})
"""States that end the wait."""
_RECORD_S = 15.0
_REPORT_S = 60.0


class StreamTrigger(BaseTrigger):
    """Fires once, when the generation has ended, with the last observation.

    Args:
        pipeline: name of the pipeline.
        generation: the deployment to watch.
        supervisor: who watches, for the registry.
        poll_s: seconds between observations.
        conn_id: where the settings are from, see `Access`.
        project: see `Access`.
    """

    def __init__(
        self,
        *,
        pipeline: str,
        generation: int,
        supervisor: str,
        poll_s: float = 2.0,
        conn_id: str | None = None,
        project: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.generation = generation
        self.supervisor = supervisor
        self.poll_s = poll_s
        self.conn_id = conn_id
        self.project = project

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("pipeline", "generation", "supervisor", "poll_s", "conn_id", "project")
        return f"{StreamTrigger.__module__}.StreamTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        access, settings = Access(conn_id=self.conn_id, project=self.project), None
        recorded = reported = float("-inf")
        before: str | None = None
        while True:
            try:
                settings = settings or await access.settings_async()
                seen = await self._look(settings)
            except Exception as error:  # says nothing about the stream, so it must not end the supervision
                seen = self._unknown(error)
            if seen.state in ENDED:
                self.log.info("%s", progress(seen))
                yield TriggerEvent(event_of(seen))  # type: ignore[no-untyped-call]
                return
            if settings is not None and clock.ticks_s() - recorded >= _RECORD_S:
                recorded = clock.ticks_s()
                await self._record(settings)
            if seen.state != before or clock.ticks_s() - reported >= _REPORT_S:
                self.log.info("%s", progress(seen))
                before, reported = seen.state, clock.ticks_s()
            await asyncio.sleep(self.poll_s)

    async def _look(self, settings: Settings) -> Observation:
        from deltaworks.control import actions  # not where DAGs are parsed

        return await asyncio.to_thread(actions.observe, settings, self.pipeline, self.generation)

    def _unknown(self, error: Exception) -> Observation:
        return Observation(
            pipeline=self.pipeline,
            generation=self.generation,
            state="unknown",
            reason=f"{type(error).__name__}: {error}",
        )

    async def _record(self, settings: Settings) -> None:
        """Tells the registry that somebody watches; if the registry is down, the next call will do."""
        from deltaworks.control.registry import supervised

        try:
            await asyncio.to_thread(supervised, settings, self.pipeline, self.generation, self.supervisor)
        except Exception as error:
            self.log.warning("could not tell the registry that this run supervises the stream: %s", error)


def event_of(seen: Observation) -> dict[str, Any]:
    """The event for the waiting task: how the stream ended."""
    return {
        "state": seen.state,
        "reason": seen.reason,
        "exit_code": seen.exit_code,
        "log_lines": list(seen.log_lines),
    }


def progress(seen: Observation) -> str:
    """The state of a stream in one line, short enough for Airflow's page."""
    text = f"generation {seen.generation}: {seen.state}"
    if seen.reason:
        text += f" ({seen.reason})"
    beat = seen.heartbeat
    if beat is None or beat.batch_id is None:
        return text
    lag = "unknown" if beat.lag_records is None else f"{beat.lag_records:,}"
    if beat.lag_seconds is not None:
        lag += f" ({beat.lag_seconds:,.0f} s)"
    return (
        f"{text}, batch {beat.batch_id}, lag {lag}, {beat.records_per_second:,.0f} records/s; "
        f"so far {beat.records_total:,} records, {beat.dead_letters:,} dead letters"
        + (f", {beat.lost_results:,} final results lost" if beat.lost_results else "")
    )
