"""A stream on a cluster that Airflow deploys, supervises, replays and stops, while executors and Airflow are killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.airflow_api import AirflowApi
from deltaworks.stack.lifecycle import down, up
from tests.support.live_stack import await_restart, kill_component
from tests.system.kills.cluster import LAUNCH_S, RATE, REPLAYED, Check
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

_COMPONENTS = ("airflow-scheduler", "airflow-triggerer", "airflow-dag-processor", "airflow-api-server")
_STREAM, _REPLAY, _QUALITY = "orders__stream", "orders__replay", "orders__quality"
_RUN_S = 600.0


@dataclass(frozen=True)
class _Platform:
    check: Check
    settings: Settings
    api: AirflowApi

    def supervised(self, run_id: str) -> None:
        """Waits until a run watches the stream."""
        self.api.wait("a stream that is supervised", lambda: self._state(run_id) == "deferred", timeout_s=LAUNCH_S)

    def _state(self, run_id: str) -> str | None:
        return self.api.task(_STREAM, run_id, "supervise").state

    def done(self, dag_id: str, conf: Mapping[str, Any]) -> None:
        """Triggers a run, and waits until it has ended; it has to succeed."""
        run_id = self.api.trigger(dag_id, conf)
        self.api.wait(run_id, lambda: self.api.run(dag_id, run_id).ended, timeout_s=_RUN_S)
        tasks = {task.task_id: task.state for task in self.api.tasks(dag_id, run_id)}
        state = self.api.run(dag_id, run_id).state
        print(f"{dag_id} {dict(conf)}: {state}", flush=True)
        if state != "success":
            self.check.wrong.append(f"airflow: {dag_id} {dict(conf)}: {tasks}")

    def kill(self, component: str) -> None:
        """SIGKILL; waits until it is back."""
        killed = kill_component(self.settings, component)
        self.check.kills["airflow"] += 1
        await_restart(self.settings, component, killed)


@contextmanager
def _stack(settings: Settings) -> Iterator[None]:
    """An Airflow of a home of its own, whose project is the one on the cluster."""
    up(settings, print, only=("registry", *_COMPONENTS), tethered=True)
    try:
        yield
    finally:
        down(settings)


def airflow(check: Check) -> None:
    """Everything by DAGs; then everything is compared."""
    with check.stage("airflow", cores=2) as stage:  # the replay has room beside the stream
        postgres, port = ports.free_ports(2)
        own = replace(check.other_home(stage), postgres_port=postgres, airflow_port=port, control_url=None)
        shutil.copytree(check.settings.project / "dags", own.project / "dags")
        stream = StreamUnderKills(own, stage.cluster.folder)
        with _stack(own), flowing(check.settings, RATE), AirflowApi.of(own) as api:
            platform = _Platform(check, own, api)
            api.wait("the DAGs", lambda: {_STREAM, _REPLAY} <= {dag.dag_id for dag in api.dags()}, timeout_s=LAUNCH_S)
            run_id = api.trigger(_STREAM)
            platform.supervised(run_id)
            stream.until(lambda: stream.batches() > 5, LAUNCH_S, "the stream does not run")
            with stage.executors_killed(check.rng):
                platform.kill("airflow-scheduler")
                platform.done(_REPLAY, {"reason": "the same again", "tables": [*REPLAYED], "approval": False})
                platform.kill("airflow-triggerer")
                committed = stream.batches()
                stream.until(lambda: stream.batches() > committed + 2, 2 * LAUNCH_S, "the stream does not go on")
            platform.done(_QUALITY, {})
            platform.done(_STREAM, {"action": "stop"})
            api.wait("the run that watched", lambda: api.run(_STREAM, run_id).ended, timeout_s=LAUNCH_S)
            if (state := api.run(_STREAM, run_id).state) != "success":
                check.wrong.append(f"airflow: the run that watched the stream is {state}")
        check.judge("airflow", stream, stage)
