"""Compares what should run with what runs, and decides what to do; the caller does it.

Any number of callers may run it every minute or so: only one of them gets each restart. A restart is a deployment that
expects the generation that it replaces, so even a claim that is carried out too late does no harm.
"""

from __future__ import annotations

from datetime import timedelta

from deltaworks import clock, disk, exits
from deltaworks.clock import Sign
from deltaworks.control import fence, heartbeat
from deltaworks.control.launchers import Launchers, launcher
from deltaworks.control.model import (
    ALIVE,
    BY_AIRFLOW,
    Action,
    Decision,
    Deployment,
    DeploymentState,
    Observation,
    PipelineRecord,
)
from deltaworks.control.observation import STALLED_S, observe
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.policy import End, GiveUp, Restart, RestartPolicy, Wait
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError, DeltaworksError
from deltaworks.settings import Settings

UNSUPERVISED = timedelta(minutes=2)
"""How long a stream may be without a DAG run that watches it before it gets a new one; at once, if it never had one."""


def reconcile(
    settings: Settings,
    name: str | None = None,
    *,
    claimed_by: str,
    policy: RestartPolicy | None = None,
    attach: bool = True,
    unsupervised_after: timedelta = UNSUPERVISED,
    stalled_after_s: float = STALLED_S,
    launchers: Launchers = launcher,
) -> list[Decision]:
    """One decision per pipeline that was ever deployed.

    Only one caller gets `restart` or `attach`; the others get `wait` until the claim has had its effect, or for three
    minutes.

    Args:
        name: only this pipeline.
        claimed_by: the caller; the same caller gets the same decision again, since it may have been killed meanwhile.
        attach: also find streams that nobody watches.

    Raises:
        ControlUnavailableError: the registry does not answer, so nothing is known.
    """
    registry = Registry.of(settings)
    one = _Reconciling(
        settings,
        registry,
        claimed_by,
        policy or RestartPolicy(),
        unsupervised_after if attach else None,
        stalled_after_s,
        launchers,
    )
    return [one.decide(record) for record in registry.pipelines(name)]


class _Reconciling:
    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        claimed_by: str,
        policy: RestartPolicy,
        unsupervised_after: timedelta | None,
        stalled_after_s: float,
        launchers: Launchers,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._claimed_by = claimed_by
        self._policy = policy
        self._unsupervised_after = unsupervised_after
        self._stalled_after_s = stalled_after_s
        self._launchers = launchers
        self._again_s: float | None = None

    def decide(self, record: PipelineRecord) -> Decision:
        """Decides about one pipeline; if its files cannot be read, the others must still be looked at."""
        self._again_s = None
        try:
            action, reason = self._decide(record)
        except ControlUnavailableError:
            raise
        except (DeltaworksError, OSError) as error:
            action, reason = "wait", f"cannot be looked at: {error}"
        return Decision(
            pipeline=record.name,
            action=action,
            generation=record.generation,
            reason=reason,
            again_s=self._again_s,
        )

    def _decide(self, record: PipelineRecord) -> tuple[Action, str]:
        name, generation = record.name, record.generation
        told = PipelinePaths.of(self._settings, name).stop
        if told.exists():  # while the registry was away
            self._registry.desire(name, "stopped")
            told.unlink(missing_ok=True)
            self._note_end(name, generation)
            return "nothing", "it was told to stop"
        if record.desired == "stopped":
            self._note_end(name, generation)
            return "nothing", "it should not run"
        if self._registry.being_deployed(name):
            return "wait", "it is being deployed"
        seen = observe(
            self._settings, name, generation, stalled_after_s=self._stalled_after_s, launchers=self._launchers
        )
        deployment = self._registry.deployment(name, generation)
        if deployment is None:
            return "wait", "it was just deployed"
        if seen.state in ALIVE:
            return self._alive(record, deployment, seen)
        if self._runs_by_hand(name, generation):
            return "nothing", seen.reason or "a newer generation runs"
        if seen.state == "unknown":
            return "wait", seen.reason or "it is unknown here"
        return self._ended(record, deployment, seen)

    def _note_end(self, name: str, generation: int) -> None:
        """Records the end of a stopped stream, in case the registry was down when it was stopped."""
        deployment = self._registry.deployment(name, generation)
        if deployment is None or deployment.ended_at is not None:
            return
        self._note(observe(self._settings, name, generation, launchers=self._launchers))

    def _note(self, seen: Observation) -> None:
        if seen.state in _FINAL:
            self._registry.ended(
                seen.pipeline, seen.generation, _FINAL[seen.state], exit_code=seen.exit_code, reason=seen.reason
            )

    def _alive(self, record: PipelineRecord, deployment: Deployment, seen: Observation) -> tuple[Action, str]:
        if seen.state != "running":
            return "nothing", f"it is {seen.state}"
        if deployment.running_at is None:  # its deployer was killed before it could record this
            self._registry.running(record.name, record.generation)
        if record.restarts and self._policy.recovered(_ran_s(deployment, seen)):
            self._registry.healthy(record.name, record.generation)
        if self._unsupervised_after is None:
            return "nothing", "it runs"
        watched = max(filter(None, (deployment.supervised_at, deployment.launched_at, deployment.requested_at)))
        never = deployment.supervised_at is None and not deployment.requested_by.startswith(BY_AIRFLOW)
        recently = abs(clock.utc_now() - watched) <= self._unsupervised_after  # abs: the clock may have been set back
        if recently and not never:
            return "nothing", "it runs"
        if not self._claim(record, "attach", record.restarts):
            return "wait", "somebody else starts a supervisor"
        return "attach", "it runs, and nobody supervises it"

    def _ended(self, record: PipelineRecord, deployment: Deployment, seen: Observation) -> tuple[Action, str]:
        why = f"{seen.state}: {seen.reason}" if seen.reason else seen.state
        self._note(seen)
        if record.gave_up is not None:
            return "give_up", record.gave_up
        match self._policy.decide(end_of(self._settings, seen, deployment), record.restarts):
            case GiveUp(reason):
                self._registry.gave_up(record.name, record.generation, reason)
                return "give_up", reason
            case Wait(seconds):
                self._again_s = seconds
                return "wait", f"{why}; restart in {seconds:.0f} s"
            case Restart(restarts):
                if not self._claim(record, "restart", restarts):
                    return "wait", f"{why}; somebody else restarts it"
                return "restart", why

    def _claim(self, record: PipelineRecord, action: Action, restarts: int) -> bool:
        return self._registry.claim(record.name, record.generation, action, self._claimed_by, restarts=restarts)

    def _runs_by_hand(self, name: str, generation: int) -> bool:
        """Whether a newer generation runs that the registry does not know: `deltaworks run` in the foreground, or one
        that was started while the registry was down."""
        newest = fence.read(PipelinePaths.of(self._settings, name).fence)
        return newest > generation and observe(self._settings, name, newest, launchers=self._launchers).state in ALIVE


def end_of(settings: Settings, seen: Observation, deployment: Deployment) -> End:
    """The end of a generation, for the policy."""
    exit_code = seen.exit_code
    if exit_code is None and disk.is_full(settings.home):  # there may have been no room for its outcome
        exit_code = exits.DISK_FULL
    return End(
        exit_code=exit_code,
        reason=seen.reason,
        ago_s=_ended_ago_s(deployment, seen),
        ran_s=_ran_s(deployment, seen),
        committed=seen.heartbeat is not None and seen.heartbeat.batch_id is not None,
    )


def _ran_s(deployment: Deployment, seen: Observation) -> float | None:
    """How long it ran; None if it never processed batches. The driver's own measurement counts ticks."""
    if deployment.running_at is None:
        return None
    if seen.heartbeat is not None:
        return seen.heartbeat.up_s
    return (seen.ended_at or clock.wall_s()) - deployment.running_at.timestamp()


def _ended_ago_s(deployment: Deployment, seen: Observation) -> float:
    if seen.ended_ago_s is not None:
        return seen.ended_ago_s
    if seen.heartbeat is not None:
        return heartbeat.age_s(seen.heartbeat)
    return Sign.of(deployment.requested_at).age_s()


_FINAL: dict[str, DeploymentState] = {
    "stopped": "stopped",
    "failed": "failed",
    "dead": "failed",
    "superseded": "superseded",
}
