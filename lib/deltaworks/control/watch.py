"""Looks at all streams and at the home, and records the incidents that it finds, or no longer finds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from deltaworks.control import incidents
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import KINDS, OF_STREAMS, Finding, Incident, Kind, Trend
from deltaworks.control.launchers import Launchers, launcher
from deltaworks.control.overview import overview
from deltaworks.errors import ControlUnavailableError
from deltaworks.settings import Settings


def watch(
    settings: Settings,
    others: Sequence[Finding] = (),
    of_others: Collection[Kind] = (),
    *,
    launchers: Launchers = launcher,
) -> None:
    """Records what is an incident now; any number of callers may do so at once.

    Args:
        settings: the home and its registry.
        others: what the caller has found itself.
        of_others: the kinds that the caller has looked for.
        launchers: as in `observe`.

    Raises:
        ControlUnavailableError: the registry does not answer, so nothing is known.
    """
    seen = overview(settings, launchers=launchers)
    if seen.registry_problem is not None:
        raise ControlUnavailableError(seen.registry_problem)
    book = IncidentBook.of(settings)
    beats = [each.seen.heartbeat for each in seen.pipelines if each.desired and each.seen.heartbeat is not None]
    trends = book.trends(beats)
    found = [*others, *incidents.of_home(settings.home)]
    known, stopped = set(), set()
    for status in seen.pipelines:
        of_it = incidents.of_stream(status, trends.get(status.name, Trend()))
        if of_it is not None:
            known.add(status.name)
            found += of_it
        if status.desired == "stopped":
            stopped.add(status.name)

    def looked_at(incident: Incident) -> bool:
        if incident.kind in OF_STREAMS:
            return incident.pipeline in known
        return incident.kind == "disk_filling" or incident.kind in of_others

    def how(incident: Incident) -> str:
        of_stopped = incident.kind in OF_STREAMS and incident.pipeline in stopped
        return incidents.STOPPED if of_stopped else KINDS[incident.kind].over

    book.settle(found, looked_at, how)
