"""Connectors that should run: failed ones are restarted, gone ones are deployed again, and what differs is told.

Kafka Connect leaves a failed task failed, and does not know which connectors there should be. `streams__reconcile` in
Airflow calls `supervise` every minute. Restarts have growing pauses and a limit, which are in the registry
(`control.connector_book`), so several callers at once count together, and each restart is claimed first. A connector
that is paused or stopped, by whatever tool, is left alone. Each connector that the project has a file for is adopted
when it is first seen in the cluster. One whose database no longer has what it has not read is not restarted at all; its
slot is watched before that (`slots.py`), also while it rests.

What it does not do: it starts no workers, undoes no change of the cluster unless the file says `on_drift="repair"`,
and knows nothing of connectors without a file that nobody has deployed from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deltaworks.connect import planning, validation
from deltaworks.connect.answers import Listed, Status
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.connector import Connector
from deltaworks.connect.project import Loaded
from deltaworks.connect.slots import Danger, Slot, Trouble
from deltaworks.connect.states import MOVING, has_failed, why_failed
from deltaworks.connectors import slots
from deltaworks.connectors.slots import Look
from deltaworks.control.connector_book import DELETED, ConnectorBook, ConnectorRecord, Desired
from deltaworks.control.incidents import DRIFTS_S, OF_CONNECTORS, Finding, Kind
from deltaworks.control.policy import RestartPolicy
from deltaworks.errors import (
    ConfigurationError,
    ConflictError,
    ConnectUnavailableError,
    ControlUnavailableError,
    DeltaworksError,
)

Action = Literal["nothing", "wait", "restart", "deploy", "repair", "give_up"]

POLICY = RestartPolicy(first_s=60.0, longest_s=960.0, limit=5, healthy_s=600.0)
"""At once after the first failure, then after 1, 2, 4 and 8 minutes; callers look once a minute."""
_DELETING_S = 180.0
"""How long a connector may still be there after it was deleted; later, somebody has made it again."""
_BY = "streams__reconcile"
_FAILED: tuple[Kind, ...] = ("connector_failed", "connector_given_up")
_WANTED: Mapping[str, Desired] = {"PAUSED": "paused", "STOPPED": "stopped"}
"""State of a connector that rests -> what somebody wants of it."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What was decided about a connector, and done."""

    name: str
    action: Action
    reason: str
    again_s: float | None = None
    """Seconds until it is restarted, for a `wait` with a known end."""


@dataclass(frozen=True)
class Supervised:
    """What a look at all connectors has led to."""

    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]


def supervise(
    api: ConnectApi,
    project: Loaded,
    book: ConnectorBook,
    policy: RestartPolicy = POLICY,
    *,
    drifts_s: float = DRIFTS_S,
    look: Look = slots.unknown,
) -> Supervised:
    """Looks at all connectors once, and restarts, deploys and repairs what needs it.

    Args:
        api: of a worker.
        project: the files.
        book: what should be, and what was tried.
        policy: pauses and limits of restarts.
        drifts_s: how long file and cluster may differ before an incident begins.
        look: asks the database of a connector for its slot.

    Raises:
        ConnectUnavailableError: the worker does not answer.
        ConfigurationError: it refuses us.
        ControlUnavailableError: the registry does not answer, so nothing is known.
    """
    cluster, there = api.cluster(), api.all()
    records = book.records()
    for name, connector in project.connectors.items():
        if name in there and _is_new(records.get(name), cluster):
            book.deployed(name, connector.properties, cluster=cluster, by=_BY)
    if any(name in there and _is_new(records.get(name), cluster) for name in project.connectors):
        records = book.records()
    one = _Supervising(api, project, book, policy, drifts_s, look)
    looked = [one.look(each, there.get(each.name), cluster) for each in records.values() if each.desired != DELETED]
    return Supervised(tuple(decision for decision, _ in looked), tuple(each for _, found in looked for each in found))


def _is_new(record: ConnectorRecord | None, cluster: str) -> bool:
    """Whether a connector that is in the cluster is none of those that we know there."""
    if record is None or record.cluster != cluster:
        return True
    return record.desired == DELETED and record.changed_ago_s > _DELETING_S


@dataclass(frozen=True)
class _Supervising:
    api: ConnectApi
    project: Loaded
    book: ConnectorBook
    policy: RestartPolicy
    drifts_s: float
    slot: Look

    def look(
        self, record: ConnectorRecord, listed: Listed | None, cluster: str
    ) -> tuple[Decision, tuple[Finding, ...]]:
        """Decides about one connector, and acts; a request that fails keeps no other from being looked at."""
        name = record.name
        if record.cluster != cluster:
            why = f"it was deployed to the cluster {record.cluster}, and this one is {cluster}"
            return Decision(name=name, action="nothing", reason=why), _unknown(name)
        try:
            return self._look(record, listed)
        except (ConnectUnavailableError, ControlUnavailableError):
            raise
        except DeltaworksError as error:
            failed = Finding(pipeline=name, kind="connector_failed", what="a request was refused", cause=error.message)
            return Decision(name=name, action="wait", reason=error.message), (failed, *_unknown(name))

    def _look(self, record: ConnectorRecord, listed: Listed | None) -> tuple[Decision, tuple[Finding, ...]]:
        name, status = record.name, None if listed is None else listed.status
        if listed is None or listed.info is None:
            return self._gone(record)
        drift = self._drift(record, listed.info.texts)
        connector = self.project.connectors.get(name)
        slot = None if connector is None else self.slot(connector)
        trouble = slots.trouble(self.api, name, status, slot)
        of_slot = _of_slot(name, slot, trouble)
        if status is None or (status.connector.state in MOVING and not has_failed(status)):
            self._seen(record, None, failed=record.failed_ago_s is not None, drifts=drift.differs)
            decision, found = Decision(name=name, action="wait", reason="its workers have not begun it"), _unknown(name)
        elif (rests := _WANTED.get(status.connector.state)) is not None:
            self._seen(record, rests, failed=False, drifts=drift.differs)
            decision, found = Decision(name=name, action="nothing", reason=f"it is {rests}"), ()
        elif trouble is not None and trouble.danger == "lost":
            self._seen(record, "running", failed=has_failed(status), drifts=drift.differs)
            decision, found = self._lost(record, _which(status) if has_failed(status) else "it reads nothing", trouble)
        elif has_failed(status):
            self._seen(record, "running", failed=True, drifts=drift.differs)
            decision, found = self._failed(record, "restart", _which(status), why_failed(status))
        else:
            decision, found = self._runs(record, drift.differs)
        if drift.repaired and decision.action in ("nothing", "wait"):
            decision = Decision(name=name, action="repair", reason="it was not as its file says")
        return decision, (*found, *of_slot, *([drift.finding] if drift.finding else []))

    def _lost(self, record: ConnectorRecord, what: str, trouble: Trouble) -> tuple[Decision, tuple[Finding, ...]]:
        """It cannot go on, so it is not restarted even once. Its task may wait for the slot, and fail much later."""
        if record.gave_up is None:
            self.book.gave_up(record.name, trouble.told)
        kept = f"{what}, and nothing restarts it"
        found = tuple(Finding(pipeline=record.name, kind=kind, what=kept, opens=False) for kind in _FAILED)
        return Decision(name=record.name, action="give_up", reason=trouble.told), found

    def _gone(self, record: ConnectorRecord) -> tuple[Decision, tuple[Finding, ...]]:
        """It should be there, and is not; one that was paused or stopped should not run, so nothing is done."""
        if record.desired != "running":
            why = f"Kafka Connect does not have it; it was {record.desired}, so it is not deployed again"
            return Decision(name=record.name, action="nothing", reason=why), ()
        self._seen(record, None, failed=True, drifts=False)
        return self._failed(record, "deploy", "Kafka Connect does not have it", "somebody has deleted it there")

    def _runs(self, record: ConnectorRecord, drifts: bool) -> tuple[Decision, tuple[Finding, ...]]:
        ago_s = record.restarted_ago_s
        recovered = record.gave_up is not None or ago_s is None or self.policy.recovered(ago_s)
        self._seen(record, "running", failed=False, drifts=drifts, recovered=recovered)
        found: tuple[Finding, ...] = ()
        if record.restarts and not recovered:
            what = "it was restarted, and runs again"
            found = (Finding(pipeline=record.name, kind="connector_failed", what=what, opens=False),)
        return Decision(name=record.name, action="nothing", reason="it runs"), found

    def _failed(
        self, record: ConnectorRecord, action: Action, what: str, cause: str | None
    ) -> tuple[Decision, tuple[Finding, ...]]:
        """Restarts it or deploys it again, if its time has come."""
        name, why = record.name, what if cause is None else f"{what}: {cause}"
        failed = Finding(pipeline=name, kind="connector_failed", what=what, cause=cause)
        if record.gave_up is not None:
            return Decision(name=name, action="give_up", reason=record.gave_up), _given_up(name, what, record.gave_up)
        failed_s = record.failed_ago_s or 0.0
        ran_s = None if record.restarted_ago_s is None else record.restarted_ago_s - failed_s
        counted = 0 if self.policy.recovered(ran_s) else record.restarts
        if counted >= self.policy.limit:
            reason = f"{counted} restarts in a row have not helped: {why}"
            self.book.gave_up(name, reason)
            return Decision(name=name, action="give_up", reason=reason), _given_up(name, what, reason)
        if (left_s := self.policy.pause_s(counted) - failed_s) > 0:
            told = f"{why}; restart {counted + 1} of {self.policy.limit} in {left_s:.0f} s"
            return Decision(name=name, action="wait", reason=told, again_s=left_s), (failed,)
        if action == "deploy" and validation.cannot_be_exact(self.api, record.properties):
            raise ConfigurationError(
                f"{why}, and it stays so: it has exactly_once, which a worker in standalone mode does not.",
                hint="deltaworks up connect",
            )
        if not self.book.claim(record, counted + 1):
            return Decision(name=name, action="wait", reason=f"{why}; somebody else restarts it"), (failed,)
        if action == "deploy":
            self.api.put(name, record.properties)
        else:
            self.api.restart(name, only_failed=True)
        told = f"{why}; restart {counted + 1} of {self.policy.limit}"
        return Decision(name=name, action=action, reason=told), (failed,)

    def _seen(
        self, record: ConnectorRecord, desired: Desired | None, *, failed: bool, drifts: bool, recovered: bool = False
    ) -> None:
        """Records what was seen, unless the record says so already."""
        known = (record.desired, record.failed_ago_s is not None, record.drifted_ago_s is not None)
        forgets = recovered and (record.restarts or record.gave_up is not None)
        if known != (desired or record.desired, failed, drifts) or forgets:
            self.book.seen(record.name, desired, failed=failed, drifts=drifts, recovered=recovered)

    def _drift(self, record: ConnectorRecord, current: Mapping[str, str]) -> _Drift:
        name = record.name
        if name in self.project.broken:
            what = f"its file cannot be used: {self.project.broken[name]}"
            finding = Finding(pipeline=name, kind="connector_drifted", what=what, opens=False)
            return _Drift(record.drifted_ago_s is not None, finding)
        connector = self.project.connectors.get(name)
        if connector is None:
            return _Drift(False)
        if connector.properties == current:
            if record.properties != current:
                self.book.takes(name, current)
            return _Drift(False)
        what = differences(connector, current)
        if connector.on_drift == "repair":
            return self._repaired(connector, what)
        late = (record.drifted_ago_s or 0.0) >= self.drifts_s
        cause = "somebody has changed the connector, or a changed file was not deployed"
        finding = Finding(pipeline=name, kind="connector_drifted", what=what, cause=cause, opens=late)
        return _Drift(True, finding)

    def _repaired(self, connector: Connector, what: str) -> _Drift:
        """Applies the file; what does not fit is told at once, as nobody else is about to see it."""
        name = connector.name
        try:
            planned = planning.plan({name: connector}, self.api, whole=False)
            if not planned.problems:
                planning.apply(planned, self.api)
            problem = str(planned.problems[0]) if planned.problems else None
        except (ConfigurationError, ConflictError) as error:
            problem = error.message
        if problem is not None:
            told = f"{what}; the file cannot be applied"
            return _Drift(True, Finding(pipeline=name, kind="connector_drifted", what=told, cause=problem))
        self.book.takes(name, connector.properties)
        return _Drift(False, repaired=True)


@dataclass(frozen=True)
class _Drift:
    """How a connector differs from its file."""

    differs: bool
    finding: Finding | None = None
    repaired: bool = False


def differences(connector: Connector, current: Mapping[str, str]) -> str:
    """The settings that are not the same in the file and in the cluster, without their values."""
    wanted = connector.properties
    names = [each for each in sorted(wanted.keys() | current.keys()) if wanted.get(each) != current.get(each)]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"it is not as its file says: {shown}"


def _which(status: Status) -> str:
    failed = [task for task in status.tasks if task.state == "FAILED"]
    return f"{len(failed)} of {len(status.tasks)} tasks have failed" if failed else "the connector itself has failed"


def _given_up(name: str, what: str, reason: str) -> tuple[Finding, ...]:
    told = f"{what}, and nothing restarts it"
    return (
        Finding(pipeline=name, kind="connector_given_up", what=told, cause=reason),
        Finding(pipeline=name, kind="connector_failed", what=told, opens=False),
    )


def _of_slot(name: str, slot: Slot | None, trouble: Trouble | None) -> tuple[Finding, ...]:
    kinds: Mapping[Danger, Kind] = {"endangered": "slot_endangered", "lost": "slot_lost"}
    if trouble is not None:
        return (Finding(pipeline=name, kind=kinds[trouble.danger], what=trouble.told),)
    if slot is not None and not slot.known:
        what = "its database does not answer now"
        return tuple(Finding(pipeline=name, kind=kind, what=what, opens=False) for kind in kinds.values())
    return ()


def _unknown(name: str) -> tuple[Finding, ...]:
    """Until something is known again, nothing is over."""
    what = "its state is not known now"
    return tuple(Finding(pipeline=name, kind=kind, what=what, opens=False) for kind in sorted(OF_CONNECTORS))
