"""What is known of the streams of a home. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Generic, TypeVar

import msgspec

from deltaworks import clock
from deltaworks.control import jobs
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import OF_CONNECTORS, Incident
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.seen import seen
from deltaworks.errors import ConfigurationError, ControlUnavailableError, DeltaworksError
from deltaworks.lakehouse import catalog, cuts, dead_letters, described
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.dead_letters import Failure
from deltaworks.lakehouse.publish.publication import Publication
from deltaworks.names import PIPELINE, hint_of
from deltaworks.replay import runs
from deltaworks.settings import Settings
from deltaworks.ui.access import Client
from deltaworks.ui.described import Pipelines, connectors
from deltaworks.ui.documents import (
    RUNS,
    DeadLetterListed,
    DeadLetters,
    DeploymentListed,
    IncidentListed,
    ReplayListed,
    StreamListed,
    Streams,
    StreamShown,
    TableListed,
    Topology,
)
from deltaworks.ui.history import Watch, history, recorded
from deltaworks.ui.told import Connectors, Described

R = TypeVar("R")
_LETTERS = 20
_REPLAYS = 20
_SOON_S = 1.0
_RECORDED_S = 30.0
"""How long charts by the minute are kept; it costs more the more batches a stream has."""
_LATER_S = 30.0


class NoSuchStreamError(DeltaworksError):
    """Nobody has deployed or run a stream of this name here, and there is no file of it."""


class Reader:
    """Reads a home, for any number of people at once.

    Args:
        settings: of the home.
        watch: keeps its heartbeats.
    """

    def __init__(self, settings: Settings, watch: Watch) -> None:
        self._settings, self._watch = settings, watch
        self._pipelines = Pipelines(settings)
        self._overview = Kept(lambda: seen(settings), _SOON_S)
        self._connectors = Kept(lambda: connectors(settings), _LATER_S)
        self._cuts = Kept(self._all_cuts, _SOON_S)
        self._each = KeptEach(lambda name: seen(settings, name), _SOON_S)
        self._letters = KeptEach(self._newest_letters, _LATER_S)
        self._recorded = KeptEach(lambda name: recorded(settings, name), _RECORDED_S)

    def streams(self, client: Client) -> Streams:
        """All streams that were ever deployed or run here, and that a client may see."""
        found, fresh = self._overview.value(), self._cuts.value()
        return Streams(
            streams=[
                StreamListed.of(each, fresh.get(each.name), client)
                for each in found.pipelines
                if client.may_see(each.name)
            ],
            registry_problem=found.registry_problem,
        )

    def stream(self, name: str, client: Client) -> StreamShown:
        """One stream.

        Raises:
            NoSuchStreamError: there is none of this name.
        """
        self._require(name, client)
        found = self._each.value(name)
        status = found.pipelines[0]
        beat = status.seen.heartbeat
        docs = self._settings.docs_url
        return StreamShown(
            stream=StreamListed.of(status, self._cut(name), client),
            log_lines=status.seen.log_lines if client.operates else None,
            incidents=[IncidentListed.of(each, docs, client) for each in self._incidents(name)],
            deployments=[DeploymentListed.of(each, client) for each in found.deployments],
            lag_by_partition={} if beat is None else beat.lag_by_partition,
            batch_phases={} if beat is None else beat.batch_phases,
            alert_lag_seconds=None if beat is None or beat.alerts.lag is None else beat.alerts.lag.total_seconds(),
            history=history(self._recorded.value(name), self._watch.kept(name)),
            registry_problem=found.registry_problem,
        )

    def topology(self, name: str, client: Client) -> Topology:
        """The graph of a stream.

        Raises:
            NoSuchStreamError: there is no stream of this name.
            ConfigurationError: its code is gone or fails.
        """
        self._require(name, client)
        told = self._described(name, client)
        live = any(each.name == name and each.seen.state in RUNS for each in self._overview.value().pipelines)
        return Topology(
            graph=told.graph,
            rates=self._watch.topic_rates(name) if live else {},
            stores=told.stores,
            command=f"deltaworks query {name}",
        )

    def tables(self, name: str, client: Client) -> list[TableListed]:
        """The tables that a stream has written.

        Raises:
            NoSuchStreamError: there is no stream of this name.
        """
        self._require(name, client)
        root = self._settings.tables
        cut = self._cut(name)
        names = set() if cut is None else set(cut.tables)
        with suppress(DeltaworksError):  # the code is gone: the cut says enough
            names |= {
                each for table in self._pipelines.described(name).tables for each in (table, f"{table}_changelog")
            }
        there = set(catalog.table_names(root))
        return [TableListed.of(described.described(root, table)) for table in sorted(names & there)]

    def letters(self, name: str, client: Client) -> DeadLetters:
        """The newest dead letters of a stream.

        Raises:
            NoSuchStreamError: there is no stream of this name.
            ConfigurationError: its code is gone or fails.
        """
        self._require(name, client)
        table = self._described(name, client).dead_letters
        if table is None:
            return DeadLetters(table=None, letters=[])
        return DeadLetters(
            table=table, letters=[DeadLetterListed.of(each, client) for each in self._letters.value(table)]
        )

    def replays(self, name: str, client: Client) -> list[ReplayListed]:
        """The replays of a stream that have not ended, and the last publications.

        Raises:
            NoSuchStreamError: there is no stream of this name.
        """
        self._require(name, client)
        own = PipelinePaths.of(self._settings, name)
        found = [
            ReplayListed.of_run(plan, paths.read_state(), client)
            for paths, plan in runs.all_unfinished(self._settings)
            if plan.request.pipeline == name
        ]
        for file in own.publications.glob("*.json"):
            with suppress(OSError, msgspec.DecodeError):
                done = msgspec.json.decode(file.read_bytes(), type=Publication)
                found.append(ReplayListed.of_publication(done, client))
        return sorted(found, key=lambda each: each.begun, reverse=True)[:_REPLAYS]

    def connectors(self, client: Client) -> Connectors:
        """The connectors of the project that a client may see."""
        return self._connectors.value().as_seen_by(client)

    def _require(self, name: str, client: Client) -> None:
        known = {each.name for each in self._overview.value().pipelines} | {*jobs.names(self._settings)}
        if not PIPELINE.allows(name) or name not in known:
            known = {each for each in known if client.may_see(each)}
            raise NoSuchStreamError(f"There is no stream {name[:100]!r}.", hint=hint_of(name[:100], known, "streams"))

    def _described(self, name: str, client: Client) -> Described:
        """What the code says. Why it fails may quote a secret, and hints name other pipelines."""
        try:
            return self._pipelines.described(name)
        except ConfigurationError as error:
            if client.operates:
                raise ConfigurationError(error.message, hint=error.hint if client.sees_all else None) from error
            raise ConfigurationError(f"The code of {name} cannot be described.", hint="operators see why") from error

    def _incidents(self, name: str) -> list[Incident]:
        with suppress(ControlUnavailableError):
            found = IncidentBook.of(self._settings).listed(name)
            return [each for each in found if each.kind not in OF_CONNECTORS]
        return []

    def _newest_letters(self, table: str) -> list[Failure]:
        root, wanted = self._settings.tables, dead_letters.Wanted()
        return dead_letters.newest(root, table, wanted, _LETTERS, records=False)

    def _all_cuts(self) -> dict[str, Cut]:
        names = (each.name for each in self._overview.value().pipelines)
        return {name: cut for name in names if (cut := self._cut(name)) is not None}

    def _cut(self, name: str) -> Cut | None:
        with suppress(OSError, DeltaworksError):
            return cuts.latest(self._settings.tables, name)
        return None


class Kept(Generic[R]):
    """A value that is computed again when it is old; who asks meanwhile waits for the same one.

    Args:
        compute: makes it.
        for_s: how long it is kept.
    """

    def __init__(self, compute: Callable[[], R], for_s: float) -> None:
        self._compute, self._for_s = compute, for_s
        self._lock = Lock()
        self._known: tuple[float, R] | None = None

    def value(self) -> R:
        """The value, at most so old."""
        with self._lock:
            if self._known is None or clock.ticks_s() - self._known[0] > self._for_s:
                made = self._compute()
                self._known = clock.ticks_s(), made
            return self._known[1]


class KeptEach(Generic[R]):
    """Likewise, a value for each stream or table.

    Args:
        compute: makes that of a name.
        for_s: how long one is kept.
    """

    def __init__(self, compute: Callable[[str], R], for_s: float) -> None:
        self._compute, self._for_s = compute, for_s
        self._kept: dict[str, Kept[R]] = {}

    def value(self, name: str) -> R:
        """The value of something that there is, at most so old."""
        return self._kept.setdefault(name, Kept(partial(self._compute, name), self._for_s)).value()
