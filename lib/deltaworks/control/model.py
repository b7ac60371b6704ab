"""Data classes about deployments, for the registry, for observers of streams and for decisions about them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from deltaworks.control.heartbeat import Heartbeat

Desired = Literal["running", "stopped"]
DeploymentState = Literal["launching", "running", "stopped", "failed", "superseded"]
StreamState = Literal[
    "launching", "running", "draining", "stopped", "failed", "dead", "stalled", "superseded", "unknown"
]
Action = Literal["restart", "attach", "wait", "give_up", "nothing"]

BY_AIRFLOW = "airflow "
"""The prefix of `requested_by` if a DAG run has deployed the stream and watches it."""
ALIVE: frozenset[StreamState] = frozenset({"launching", "running", "draining"})
"""States in which somebody works on the deployment, or is about to."""


class DeployOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a deployment; for None, the pipeline or the settings decide."""

    launcher: str = "local"
    trigger_interval_s: float | None = None
    """Time from the start of one micro-batch to the next."""
    start_offsets: Literal["earliest", "latest"] | None = None
    """Where a new checkpoint starts."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of a pipeline, as recorded in the registry."""

    pipeline: str
    generation: int
    request_id: str | None = None
    """Id of the request; repeating it gives the same deployment."""
    requested_by: str
    requested_at: datetime
    options: DeployOptions
    external_id: dict[str, Any] | None = None
    """The launcher's id of the driver; None until it is launched."""
    state: DeploymentState
    """The last recorded state; `actions.observe` gives the current one."""
    exit_code: int | None = None
    reason: str | None = None
    launched_at: datetime | None = None
    running_at: datetime | None = None
    """When it first processed a batch."""
    ended_at: datetime | None = None
    log: str
    supervised_at: datetime | None = None
    """When a supervisor last reported that it watches the stream."""
    supervised_by: str | None = None
    code: str | None = None
    """Digest of the archive that it runs from, see `control.code`; None: it runs from the files of the project."""


class PipelineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state of a pipeline, and the attempts to reach it."""

    name: str
    desired: Desired
    generation: int
    """Generation of the latest deployment."""
    restarts: int = 0
    """Automatic restarts since the stream was last healthy for a while or deployed by somebody."""
    gave_up: str | None = None
    """Why it is no longer restarted."""


class DrainCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command for a driver to finish and stop."""

    id: int
    kind: Literal["drain"]
    requested_by: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a generation."""

    pipeline: str
    generation: int
    state: StreamState
    reason: str | None = None
    log_lines: list[str] = []
    """Log lines that explain the end, if it needs an explanation."""
    exit_code: int | None = None
    ended_at: float | None = None
    """When it ended, in Unix seconds; if it left no outcome, its last sign of life."""
    ended_ago_s: float | None = None
    """How long before this observation it ended."""
    heartbeat: Heartbeat | None = None
    """The last heartbeat of this generation."""


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one pipeline, for people."""

    name: str
    desired: Desired | None
    """The desired state; None if the registry does not know the pipeline or does not answer."""
    seen: Observation
    """Its latest generation."""
    for_s: float | None
    """How long it has been in this state: since its start or its end."""
    restarts: int
    reason: str | None
    """The reason for the state, if it needs one."""
    gave_up: str | None = None
    """Why it is no longer restarted."""
    incidents: int = 0
    """The number of its open incidents; 0 also if the registry does not answer."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The status of all pipelines."""

    pipelines: list[PipelineStatus]
    deployments: list[Deployment]
    """The deployments of the requested pipeline, latest first."""
    registry_problem: str | None
    """Why the overview shows only what this host knows."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a pipeline."""

    pipeline: str
    action: Action
    generation: int
    reason: str
    again_s: float | None = None
    """The seconds to wait, for a `wait` with a known end."""
