"""The status of all pipelines, for people."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from deltaworks import clock
from deltaworks.control import fence, heartbeat, lease
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.launchers import Launchers, launcher
from deltaworks.control.model import ALIVE, Deployment, Overview, PipelineRecord, PipelineStatus
from deltaworks.control.observation import observe
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError, IncompatibleCheckpointError
from deltaworks.settings import Settings


def overview(settings: Settings, name: str | None = None, *, launchers: Launchers = launcher) -> Overview:
    """The status of everything that was ever deployed or run here, or of one pipeline with its last deployments."""
    registry = Registry.of(settings)
    records: dict[str, PipelineRecord] = {}
    deployments: list[Deployment] = []
    incidents: Mapping[str, int] = {}
    problem = None
    try:
        records = {record.name: record for record in registry.pipelines(name)}
        deployments = registry.deployments(name, limit=10) if name is not None else []
        incidents = IncidentBook(registry).open_counts()
    except ControlUnavailableError as error:
        problem = error.message
    traces = (path for file in ("generation", "heartbeat.json") for path in settings.pipelines.glob(f"*/{file}"))
    local = {path.parent.name for path in traces}
    names = sorted(records.keys() | local) if name is None else [name]
    return Overview(
        pipelines=[
            _status(settings, registry, each, records.get(each), launchers, incidents.get(each, 0)) for each in names
        ],
        deployments=deployments,
        registry_problem=problem,
    )


def _status(
    settings: Settings,
    registry: Registry,
    name: str,
    record: PipelineRecord | None,
    launchers: Launchers,
    incidents: int,
) -> PipelineStatus:
    paths = PipelinePaths.of(settings, name)
    generation = record.generation if record else 0
    with suppress(IncompatibleCheckpointError):  # `observe` reports it
        generation = max(generation, fence.read(paths.fence))
    seen = observe(settings, name, generation, launchers=launchers)
    since = _started(registry, paths, name, generation) if seen.state in ALIVE else seen.ended_at
    return PipelineStatus(
        name=name,
        desired=record.desired if record else None,
        seen=seen,
        for_s=max(0.0, clock.wall_s() - since) if since is not None else None,
        restarts=record.restarts if record else 0,
        reason=(record.gave_up if record else None)
        or seen.reason
        or _waits_for(paths)
        or _why_restarted(registry, record),
        gave_up=record.gave_up if record else None,
        incidents=incidents,
    )


def _waits_for(paths: PipelinePaths) -> str | None:
    """The systems that count as down."""
    beat = heartbeat.read(paths.heartbeat)
    if beat is None or beat.state in ("stopped", "failed") or not beat.call_outs:
        return None
    return "down: " + ", ".join(f"the system of {name} ({state})" for name, state in sorted(beat.call_outs.items()))


def _why_restarted(registry: Registry, record: PipelineRecord | None) -> str | None:
    """How the previous generation ended, if this one is its restart."""
    if record is None or not record.restarts:
        return None
    with suppress(ControlUnavailableError):
        before = registry.deployment(record.name, record.generation - 1)
        if before is not None and before.reason is not None:
            return f"generation {before.generation} ended: {before.reason}"
    return None


def _started(registry: Registry, paths: PipelinePaths, name: str, generation: int) -> float | None:
    holder = lease.read_holder(paths.lease)
    if holder is not None and holder.generation == generation:
        return holder.since
    try:
        deployment = registry.deployment(name, generation)
    except ControlUnavailableError:
        return None
    return deployment.requested_at.timestamp() if deployment else None
