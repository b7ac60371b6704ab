"""What is said about deployments: by the registry, by whoever looks at a stream, and by whoever decides about it."""

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
"""How `requested_by` begins where a run of a DAG has deployed, and watches."""
ALIVE: frozenset[StreamState] = frozenset({"launching", "running", "draining"})
"""Somebody is at work, or about to be."""


class DeployOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a deployment runs; what is None is as the pipeline or the settings say."""

    launcher: str = "local"
    trigger_interval_s: float | None = None
    """Time from the begin of one micro-batch to the next."""
    start_offsets: Literal["earliest", "latest"] | None = None
    """Where a new checkpoint starts."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of a pipeline, as the registry has it."""

    pipeline: str
    generation: int
    request_id: str | None = None
    """Who repeats a request with the same id gets the same deployment."""
    requested_by: str
    requested_at: datetime
    options: DeployOptions
    external_id: dict[str, Any] | None = None
    """What the launcher knows it by; None until it is launched."""
    state: DeploymentState
    """As of the last time that somebody changed it; how the stream is now says `actions.observe`."""
    exit_code: int | None = None
    reason: str | None = None
    launched_at: datetime | None = None
    running_at: datetime | None = None
    """When it processed batches for the first time."""
    ended_at: datetime | None = None
    log: str
    supervised_at: datetime | None = None
    """When somebody said last that he watches it."""
    supervised_by: str | None = None
    code: str | None = None
    """Digest of the archive that it runs from, see `control.code`; None: from the files of the project."""


class PipelineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What should be with a pipeline, and what was tried."""

    name: str
    desired: Desired
    generation: int
    """Of the latest deployment."""
    restarts: int = 0
    """Automatic ones since the stream was healthy for a while, or since somebody deployed it."""
    gave_up: str | None = None
    """Why nobody tries any more."""


class DrainCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a driver shall do."""

    id: int
    kind: Literal["drain"]
    requested_by: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """How a generation is at this moment."""

    pipeline: str
    generation: int
    state: StreamState
    reason: str | None = None
    log_lines: list[str] = []
    """What explains the end, if it is one that needs to be explained."""
    exit_code: int | None = None
    ended_at: float | None = None
    """Unix seconds; of an end without a word, the last sign of life."""
    ended_ago_s: float | None = None
    """How long before this look."""
    heartbeat: Heartbeat | None = None
    """The last one of this generation."""


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one pipeline is, for people."""

    name: str
    desired: Desired | None
    """None if the registry does not know it, or is away."""
    seen: Observation
    """Its latest generation."""
    for_s: float | None
    """How long it has been so: since its start, or since its end."""
    restarts: int
    reason: str | None
    """Why it is as it is, if that needs a reason."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """How all of them are."""

    pipelines: list[PipelineStatus]
    deployments: list[Deployment]
    """Of the one that was asked for, the latest first."""
    registry_problem: str | None
    """Why only what is known on this host is shown."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about a pipeline."""

    pipeline: str
    action: Action
    generation: int
    reason: str
    again_s: float | None = None
    """Of a `wait` whose end is known: the seconds until then."""
