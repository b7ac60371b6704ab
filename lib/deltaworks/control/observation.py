"""Observes the state of a stream: first its host (process, files), then the registry.

So it works without the registry, and an outdated registry does not mislead it.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import msgspec

from deltaworks import exits
from deltaworks.clock import Sign
from deltaworks.control import fence, heartbeat, lease, outcome
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.launchers import ExternalId, Launcher, Launchers, Life, launcher
from deltaworks.control.model import Deployment, Observation, PipelineRecord, StreamState
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError, IncompatibleCheckpointError
from deltaworks.settings import Settings

STALLED_S = 60.0
"""A driver without a heartbeat for this long hangs."""
LAUNCH_S = 180.0
"""A driver without a first heartbeat for this long has failed to start."""


def observe(
    settings: Settings,
    name: str,
    generation: int,
    *,
    stalled_after_s: float = STALLED_S,
    launch_timeout_s: float = LAUNCH_S,
    launchers: Launchers = launcher,
) -> Observation:
    """Observes a generation of a pipeline; never raises because the registry is down."""
    look = _Look(settings, name, generation, launchers)
    # In this order: a driver writes its outcome and ends, and must not be taken for one that ended without an outcome.
    life = look.life()
    word = outcome.read(look.paths.outcome(generation))
    try:
        highest = fence.read(look.paths.fence)
    except IncompatibleCheckpointError as error:  # reported here, so that other pipelines can be observed
        return look.result("unknown", str(error))
    newest = max(highest, look.record.generation if look.record else 0)
    if highest > generation or (newest > generation and life != "alive"):
        said = look.deployment
        if said is not None and said.state == "failed":  # it had failed before; late observers must learn of it
            reason = f"{said.reason or 'it failed'}; generation {newest} has taken over"
            since = Sign.of(said.ended_at) if said.ended_at else None
            return look.result("failed", reason, exit_code=said.exit_code, ended=since)
        return look.result(
            "superseded",
            f"generation {newest} has taken over",
            exit_code=word.exit_code if word else None,
            ended=outcome.sign_of(word) if word else None,
        )
    if word is not None:
        orderly = word.exit_code in (exits.OK, exits.INTERRUPTED)
        state: StreamState = "stopped" if orderly else "failed"
        ended = outcome.sign_of(word)
        return look.result(state, word.reason, exit_code=word.exit_code, ended=ended, explain=not orderly)
    if life == "ended":
        known = look.deployment.reason if look.deployment else None
        reason = known or "its process was killed, or crashed without leaving a reason"
        return look.result("dead", reason, ended=look.last_sign(), explain=True)
    if look.beat is None:
        return look.without_heartbeat(life, launch_timeout_s)
    age_s = heartbeat.age_s(look.beat)
    allowed_s = launch_timeout_s if look.beat.state == "starting" else stalled_after_s
    if age_s <= allowed_s:
        return look.result(_STATES[look.beat.state])
    if life == "alive":
        return look.result("stalled", f"no heartbeat for {age_s:.0f} s, and its process still exists", explain=True)
    ended = heartbeat.sign_of(look.beat)
    return look.result("dead", f"no heartbeat for {age_s:.0f} s", ended=ended, explain=True)


_STATES: dict[heartbeat.State, StreamState] = {
    "starting": "launching",
    "running": "running",
    "draining": "draining",
    # It has announced its end but still runs; the outcome follows.
    "stopped": "draining",
    "failed": "draining",
}


class _Look:
    """Everything that is known about a generation at one moment."""

    def __init__(self, settings: Settings, name: str, generation: int, launchers: Launchers) -> None:
        self.paths = PipelinePaths.of(settings, name)
        self._name = name
        self._generation = generation
        self._registry = Registry.of(settings)
        self.record: PipelineRecord | None = None
        self.deployment: Deployment | None = None
        self._registry_beat: Heartbeat | None = None
        with suppress(ControlUnavailableError):
            self.record, self.deployment, self._registry_beat = self._registry.known(name, generation)
        self._launcher: Launcher = launchers(settings, self.deployment.options.launcher if self.deployment else "local")
        self._driver: ExternalId | None = self.deployment.external_id if self.deployment else None
        self._driver = self._driver or self._launcher.drivers(name).get(generation)

    @property
    def beat(self) -> Heartbeat | None:
        """The last heartbeat of this generation."""
        beats = (last_beat(self.paths), self._registry_beat)
        return next((beat for beat in beats if beat and beat.generation == self._generation), None)

    def life(self) -> Life:
        if self._driver is not None:
            return self._launcher.status(self._driver)
        holder = lease.read_holder(self.paths.lease)  # the holder is a run in the foreground, which no launcher knows
        if holder is None or holder.generation != self._generation or holder.host != socket.gethostname():
            return "gone"
        return "alive" if holder.driver.alive() else "ended"

    def last_sign(self) -> Sign:
        """When it was last certainly alive."""
        return heartbeat.sign_of(self.beat) if self.beat else self._since() or Sign.now()

    def without_heartbeat(self, life: Life, launch_timeout_s: float) -> Observation:
        if self._driver is None and self.deployment is not None:
            return self._before_launch()
        since = self._since()
        if since is None:
            return self.result("unknown", "this generation is unknown here")
        age_s = since.age_s()
        if age_s <= launch_timeout_s:
            return self.result("launching")
        reason = f"no heartbeat for {age_s:.0f} s after its launch"
        return self.result("dead", reason, ended=since, explain=True)

    def _before_launch(self) -> Observation:
        """Observes a generation whose deployment is (or was) being prepared, while the previous generation drains."""
        assert self.deployment is not None
        try:
            if not self._registry.being_deployed(self._name):
                now = self._registry.deployment(self._name, self._generation)  # it may have been launched just now
                if now is not None and now.external_id is None:
                    reason = now.reason or "its deployment was aborted before the launch"
                    return self.result("dead", reason, ended=Sign.of(self.deployment.requested_at))
        except ControlUnavailableError:
            return self.result("unknown", "the registry does not answer")
        return self.result("launching")

    def _since(self) -> Sign | None:
        if self._driver is not None and "launched" in self._driver:
            return msgspec.convert(self._driver["launched"], Sign)
        if self.deployment is not None and self.deployment.launched_at is not None:
            return Sign.of(self.deployment.launched_at)
        return None

    def result(
        self,
        state: StreamState,
        reason: str | None = None,
        *,
        exit_code: int | None = None,
        ended: Sign | None = None,
        explain: bool = False,
    ) -> Observation:
        return Observation(
            pipeline=self._name,
            generation=self._generation,
            state=state,
            reason=reason,
            log_lines=self._launcher.log_lines(self._driver) if explain and self._driver else [],
            exit_code=exit_code,
            ended_at=ended.wall_s if ended else None,
            ended_ago_s=ended.age_s() if ended else None,
            heartbeat=self.beat,
        )


def last_beat(paths: PipelinePaths) -> Heartbeat | None:
    """The heartbeat in the file, unless another version of deltaworks wrote it."""
    return heartbeat.read(paths.heartbeat)
