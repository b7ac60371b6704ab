"""The orders pipeline under Airflow while its surroundings are killed one after the other.

Everything is real: the stream is deployed by its DAG, the runner restarts what is killed, the supervisor brings a dead
stream back, and `streams__reconcile` has it watched. Nothing here helps; it kills, waits for facts and takes notes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from deltaworks import processes
from deltaworks.control import actions, batches, heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.reconcile import reconcile
from deltaworks.control.registry import Registry
from deltaworks.settings import Settings
from deltaworks.stack.airflow_api import AirflowApi
from deltaworks.stack.state import ComponentState, read_state
from jobs import orders
from jobs.recomputed.orders import recomputation
from jobs.recomputed.results import Comparison
from tests.support.live_stack import has_read, settled_end_offsets

DAG = "orders__stream"
AIRFLOW = ("airflow-scheduler", "airflow-triggerer", "airflow-api-server", "airflow-dag-processor")
_POLL_S = 0.1
_WAIT_S = 300.0
T = TypeVar("T")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Event:
    """What one kill led to."""

    victim: str
    back_s: float
    """Until the victim was ready again; of a driver: until a new one processed batches."""
    stream: str
    """What became of the stream."""
    batches: int
    """That the stream committed between the kill and the end of the wait."""


@dataclass
class PlatformUnderKills:
    """One stack with Airflow, and the stream that must survive it."""

    settings: Settings
    report: Report = print
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._airflow = AirflowApi.of(self.settings)

    def __enter__(self) -> PlatformUnderKills:
        return self

    def __exit__(self, *_: object) -> None:
        self._airflow.close()

    # The stream

    def deploy(self, times: int = 1) -> list[str]:
        """Triggers the DAG, several times at once if told so; returns the runs once the last generation runs."""
        before = self.generation
        self._airflow.wait("the DAG", lambda: any(dag.dag_id == DAG for dag in self._airflow.dags()), timeout_s=_WAIT_S)
        runs = [self._airflow.trigger(DAG) for _ in range(times)]
        self.until(lambda: self.generation == before + times and self.beat_of(before + times), "the stream runs")
        self.supervised()
        return runs

    def stop(self) -> None:
        """Drains the stream by its DAG."""
        run_id = self._airflow.trigger(DAG, {"action": "stop"})
        self._airflow.wait("the stop run", lambda: self._airflow.run(DAG, run_id).ended, timeout_s=_WAIT_S)
        assert self._airflow.run(DAG, run_id).state == "success"
        assert self.driver is None, "a stopped stream has no driver"

    @property
    def generation(self) -> int:
        record = Registry.of(self.settings).pipeline("orders")
        return record.generation if record else 0

    @property
    def driver(self) -> processes.Registered | None:
        """The driver that runs."""
        entry = processes.find(self.settings.run, "orders")
        return entry if entry is not None and entry.alive else None

    def beat_of(self, generation: int) -> Heartbeat | None:
        """The heartbeat of a generation that has committed a batch."""
        beat = heartbeat.read(self.settings.pipeline("orders") / "heartbeat.json")
        at_work = beat is not None and beat.generation == generation and beat.state == "running"
        return beat if at_work and beat is not None and beat.batch_id is not None else None

    def supervised(self) -> str:
        """Waits until a deferred task watches the generation that runs; returns its run."""

        def watching() -> str | None:
            for run in self._airflow.runs(DAG):
                if run.state == "running" and self._airflow.task(DAG, run.dag_run_id, "supervise").state == "deferred":
                    deployed = self._airflow.xcom(DAG, run.dag_run_id, "deploy")
                    if deployed["generation"] == self.generation:
                        return run.dag_run_id
            return None

        return self._airflow.wait("a supervisor of the running generation", watching, timeout_s=_WAIT_S)

    def batches_committed(self) -> int:
        return sum(1 for _ in batches.read(self.settings.pipeline("orders") / "batches"))

    # Kills

    def kill(self, component: str, *, hangs: bool = False) -> None:
        """SIGKILL of one component, or it is suspended for ever; it comes back, and the stream goes on."""
        before, driver, generation = self._state(component), self.driver, self.generation
        committed, begun = self.batches_committed(), time.monotonic()
        os.kill(before.pid, signal.SIGSTOP if hangs else signal.SIGKILL)
        self.until(lambda: self._is_back(before), f"{component} is back")
        back_s = time.monotonic() - begun
        self._goes_on(committed)
        if component != "kafka":
            assert self.driver == driver, f"{component} was killed, and the stream had to start again"
        self.supervised()
        self._note(f"{component}, hangs" if hangs else component, back_s, generation, committed)

    def without(self, component: str, seconds: float) -> None:
        """Kills a component whenever it comes back, for a while."""
        driver, generation = self.driver, self.generation
        committed, end, last = self.batches_committed(), time.monotonic() + seconds, 0
        while time.monotonic() < end:
            if (state := self._state(component)).pid != last:
                with suppress(ProcessLookupError):
                    os.kill(state.pid, signal.SIGKILL)
                last = state.pid
            time.sleep(_POLL_S)
        begun, before = time.monotonic(), self._state(component)
        assert self.batches_committed() > committed, f"the stream stood still while {component} was away"
        self.until(lambda: before.phase == "ready" or self._is_back(before), f"{component} is back")
        back_s = time.monotonic() - begun
        self._goes_on(self.batches_committed())
        assert self.driver == driver, f"{component} was away, and the stream had to start again"
        self.supervised()
        self._note(f"{component}, away {seconds:.0f} s", back_s, generation, committed)

    def kill_driver(self, *beside: str) -> None:
        """SIGKILL of the driver, and of components at the same moment; the run that watched it says so, the supervisor
        brings the stream back, and another run watches it."""
        driver, generation, watched_by = self.driver, self.generation, self.supervised()
        assert driver is not None
        committed, begun = self.batches_committed(), time.monotonic()
        for pid in (*(self._state(component).pid for component in beside), driver.pid):
            os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.generation > generation and self.beat_of(self.generation), "a new generation runs")
        back_s = time.monotonic() - begun
        assert self.generation == generation + 1, "one death, one restart"
        self._airflow.wait("the old supervisor", lambda: self._airflow.run(DAG, watched_by).ended, timeout_s=_WAIT_S)
        assert self._airflow.task(DAG, watched_by, "supervise").state == "failed"
        assert "killed" in self._airflow.log(DAG, watched_by, "supervise")
        assert self.supervised() != watched_by
        self._goes_on(committed)
        self._note(" and ".join(("driver", *beside)), back_s, generation, committed)

    def kill_driver_before_many_reconcilers(self, count: int = 4) -> None:
        """SIGKILL of the driver while several look at once, the supervisor and Airflow among them: one restart."""
        driver, generation = self.driver, self.generation
        assert driver is not None
        committed, begun = self.batches_committed(), time.monotonic()
        os.kill(driver.pid, signal.SIGKILL)
        with ThreadPoolExecutor(count) as pool:
            restarts = sum(pool.map(lambda number: self._reconcile(f"reconciler {number}", generation), range(count)))
        self.until(lambda: self.beat_of(self.generation), "a new generation runs")
        back_s = time.monotonic() - begun
        assert restarts <= 1 and self.generation == generation + 1, "one death, one restart"
        self._goes_on(committed)
        self.supervised()
        self._note(f"driver, before {count + 2} reconcilers", back_s, generation, committed)

    def _reconcile(self, name: str, generation: int) -> int:
        """Looks until the generation has been replaced, and restarts it if that is given to it; how often it was."""
        restarts, end = 0, time.monotonic() + _WAIT_S
        while self.generation == generation and time.monotonic() < end:
            (decision,) = reconcile(self.settings, claimed_by=name)
            if decision.action == "restart":
                restarts += 1
                actions.deploy(self.settings, "orders", expected_generation=generation, requested_by=name)
            time.sleep(_POLL_S)
        return restarts

    def deploy_twice_at_once(self) -> None:
        """Two runs of the DAG at the same moment: two generations, one stream."""
        generation, committed, begun = self.generation, self.batches_committed(), time.monotonic()
        self.deploy(times=2)
        back_s = time.monotonic() - begun
        drivers = [entry for entry in processes.registered(self.settings.run) if entry.kind == "pipeline"]
        assert [entry.name for entry in drivers if entry.alive] == ["orders"]
        self._note("deployed twice at once", back_s, generation, committed)

    # The end

    def settle(self) -> list[Comparison]:
        """Waits until every record is in the tables of the live stream, then compares."""
        self.until(self._caught_up, "every record is in the tables")
        return self.compare()

    def compare(self) -> list[Comparison]:
        """Everything against its recomputation."""
        records = self.settings.pipeline("orders") / "batches"
        return recomputation.check(self.settings.cluster, self.settings.tables, records)

    def until(self, fact: Callable[[], T | None], what: str) -> T:
        """Polls; what is away meanwhile is waited for."""
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end:
            with suppress(Exception):
                if answer := fact():
                    return answer
            time.sleep(_POLL_S)
        log = processes.last_lines(self.settings.logs / "orders.log", 15)
        raise AssertionError(f"{what}: not after {_WAIT_S:.0f} s\n" + "\n".join(log))

    def _goes_on(self, committed: int) -> None:
        self.until(lambda: self.batches_committed() > committed + 1, "the stream commits batches")

    def _caught_up(self) -> bool:
        beat = self.beat_of(self.generation)
        if beat is None or beat.stale_snapshots:
            return False
        ends = settled_end_offsets(self.settings.cluster, orders.pipeline.plan().source_topics)
        return has_read(beat, ends)

    def _state(self, component: str) -> ComponentState:
        state = read_state(self.settings.run)
        found = state.find(component) if state is not None else None
        assert found is not None, f"{component} is not part of the stack"
        return found

    def _is_back(self, before: ComponentState) -> bool:
        now = self._state(before.name)
        return now.pid != before.pid and now.phase == "ready"

    def _note(self, victim: str, back_s: float, generation: int, committed: int) -> None:
        new = self.generation
        stream = "same driver" if new == generation else f"generation {generation} -> {new}"
        event = Event(victim, back_s, stream, self.batches_committed() - committed)
        self.events.append(event)
        self.report(f"{victim:32} back after {back_s:5.1f} s   {stream:24} {event.batches} batches meanwhile")


def different(comparisons: Sequence[Comparison]) -> list[str]:
    """What is not equal to its recomputation."""
    return [f"{c.kind} {c.name}: {c.different} rows, {c.differences}" for c in comparisons if not c.equal]
