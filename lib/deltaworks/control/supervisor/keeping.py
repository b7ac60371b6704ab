"""Restarts streams that do not run.

`control.reconcile` makes the decision, and a restart is a deployment like any other. So Airflow may decide at the same
time: it decides the same, and only one of them acts.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from deltaworks import exits
from deltaworks.control import actions, fence, outcome
from deltaworks.control.launchers import Launchers
from deltaworks.control.model import ALIVE, Deployment, PipelineRecord
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.policy import GiveUp, Restart, RestartPolicy, Wait
from deltaworks.control.reconcile import end_of, reconcile
from deltaworks.control.registry import Registry
from deltaworks.errors import ConflictError, ControlUnavailableError, DeltaworksError
from deltaworks.settings import Settings

_log = logging.getLogger("deltaworks.supervisor")
SOON_S = 1.0
"""Seconds until the next look at a stream that somebody works on."""
ROUND_S = 10.0
"""Seconds until the next look at a stream without news."""


@dataclass
class _Known:
    """The last information from the registry about a stream."""

    record: PipelineRecord
    deployment: Deployment | None
    restarts: int = 0
    """Restarts since then."""


@dataclass
class Keeper:
    """Looks at one stream at a time; several threads may call it for several streams.

    Args:
        settings: settings of the restarts.
        launchers: start drivers from here.
        policy: number of restarts, and the pauses between them.
    """

    settings: Settings
    launchers: Launchers
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    report: Callable[[str, str], None] = lambda name, text: _log.info("%s: %s", name, text)
    """Called with the name of the stream and the news."""
    by: str = field(default_factory=lambda: f"supervisor at {socket.gethostname()}")
    _known: dict[str, _Known] = field(default_factory=dict)

    def streams(self) -> list[str]:
        """All streams that were ever deployed.

        Raises:
            ControlUnavailableError: the registry does not answer.
        """
        return [record.name for record in Registry.of(self.settings).pipelines()]

    def note_end(self, name: str, generation: int, how: str) -> None:
        """Records how a driver without an outcome ended; an earlier note stays.

        It ignores a driver that is being stopped or replaced, because whoever does that records it.
        """
        registry = Registry.of(self.settings)
        word = outcome.read(PipelinePaths.of(self.settings, name).outcome(generation))
        if word is None and not registry.being_deployed(name):
            registry.ended(name, generation, "failed", exit_code=None, reason=how)

    def look(self, name: str) -> float:
        """Does what is necessary now; returns the seconds until the next look.

        Raises:
            ControlUnavailableError: the registry does not answer; its last known wishes were carried out.
        """
        try:
            return self._look(name)
        except ControlUnavailableError:
            if (known := self._known.get(name)) is not None:
                self._look_alone(name, known)
            raise

    def _look(self, name: str) -> float:
        registry = Registry.of(self.settings)
        record = registry.pipeline(name)
        if record is None:
            return ROUND_S
        begun = registry.deployment(name, record.generation)
        self._known[name] = _Known(record, begun)
        if begun is not None and self._is_mine_to_finish(registry, record, begun):
            self.report(name, f"resuming the deployment of generation {begun.generation}")
            return self._deploy(name, begun, begun.request_id, None)
        (decision,) = reconcile(
            self.settings, name, claimed_by=self.by, policy=self.policy, attach=False, launchers=self.launchers
        )
        match decision.action:
            case "restart":
                self.report(name, f"restarting, generation {decision.generation} ended: {_first(decision.reason)}")
                request_id = f"restart of generation {decision.generation}"
                return self._deploy(name, begun, request_id, decision.generation)
            case "wait":
                return SOON_S if decision.again_s is None else decision.again_s
            case "attach" | "give_up" | "nothing":
                return ROUND_S

    def _look_alone(self, name: str, known: _Known) -> None:
        """Without the registry, restarts a stream that should run by the last information, as a new generation.

        The registry treats that generation like a manual run: it is left alone while it runs, and when it ends, the
        latest generation that the registry knows is restarted under a higher number.
        """
        paths = PipelinePaths.of(self.settings, name)
        if known.record.desired == "stopped" or known.deployment is None or paths.stop.exists():
            return
        launched = self.launchers(self.settings, "local").drivers(name)
        newest = max(fence.read(paths.fence), known.record.generation, *launched)
        seen = actions.observe(self.settings, name, newest, launchers=self.launchers)
        if seen.state in ALIVE or seen.state == "unknown":
            return
        match self.policy.decide(end_of(self.settings, seen, known.deployment), known.restarts):
            case Restart(restarts):
                known.restarts = restarts + 1
                self.report(name, f"restarting without the registry: {_first(seen.reason or seen.state)}")
                actions.launch_alone(
                    self.settings, name, newest + 1, known.deployment, by=self.by, launchers=self.launchers
                )
            case Wait() | GiveUp():
                pass

    def _is_mine_to_finish(self, registry: Registry, record: PipelineRecord, begun: Deployment) -> bool:
        """Whether the previous supervisor was killed during this restart."""
        return (
            record.desired == "running"
            and begun.requested_by == self.by
            and begun.state == "launching"
            and not registry.being_deployed(record.name)
        )

    def _deploy(self, name: str, last: Deployment | None, request_id: str | None, expected: int | None) -> float:
        try:
            actions.deploy(
                self.settings,
                name,
                None if last is None else last.options,
                request_id=request_id,
                requested_by=self.by,
                expected_generation=expected,
                runs=actions.code_of(self.settings, last),
                launchers=self.launchers,
            )
        except ControlUnavailableError:
            raise
        except ConflictError as error:
            self.report(name, error.message)
        except DeltaworksError as error:
            self.report(name, _first(str(error)))
            if expected is not None and exits.code_of(error) in exits.NO_RESTART:
                Registry.of(self.settings).gave_up(name, expected, str(error))
        else:
            return 0.0
        return SOON_S


def _first(text: str) -> str:
    return text.partition("\n")[0]
