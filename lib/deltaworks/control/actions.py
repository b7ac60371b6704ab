"""The actions of people and Airflow on streams: preflight, deploy, stop, restart, observe.

Each deployment has a generation, a number that fences all earlier ones (see `fence` and `registry`). Only one
deployment of a pipeline happens at a time, wherever it was requested; a later one waits and then replaces the earlier.

Actions do not keep a stream running. `reconcile` does, and requests deployments like everybody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from deltaworks import clock, home
from deltaworks.control import checkpoint, code, fence, jobs, lineage, outcome, retention
from deltaworks.control.code import Code
from deltaworks.control.ending import end_drivers
from deltaworks.control.launchers import DriverSpec, ExternalId, Launcher, Launchers, launcher
from deltaworks.control.model import ALIVE, Deployment, DeploymentState, DeployOptions, Observation
from deltaworks.control.observation import LAUNCH_S, observe
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.preflight import preflight, preflight_again
from deltaworks.control.registry import Registry
from deltaworks.errors import ConfigurationError, ConflictError, ControlUnavailableError, StackError
from deltaworks.kafka import control_topic
from deltaworks.settings import Settings

__all__ = ["code_of", "deploy", "observe", "preflight", "preflight_again", "restart", "stop"]

_POLL_S = 0.1
Report = Callable[[str], None]


def deploy(
    settings: Settings,
    name: str,
    options: DeployOptions | None = None,
    *,
    request_id: str | None = None,
    requested_by: str,
    expected_generation: int | None = None,
    runs: Code | None = None,
    until_launch: Deployment | None = None,
    before_launch: Callable[[int], None] = lambda generation: None,
    report: Report = lambda _: None,
    drain_s: float = 60.0,
    launch_s: float = LAUNCH_S,
    launchers: Launchers = launcher,
) -> Deployment:
    """Replaces whatever runs with a new generation, and waits until that processes batches.

    It does not check what `preflight` checks. If this process dies, the stream is not affected; repeating the request
    resumes it.

    Args:
        request_id: repeating a request with the same id gives the same deployment, not a second one.
        expected_generation: for an automatic restart: deploy only if this is the latest generation, should run, and
            does not.
        runs: the code; None: the current code of the project.
        until_launch: the deployment whose code a restart uses if this process dies before `before_launch` has returned;
            None: already that of the new one.
        before_launch: called with the new generation when the previous one has ended. Its errors end the deployment.
        drain_s: how long the previous generation may take to finish its batch before it is killed.
        launch_s: how long the new one may take until its first heartbeat.

    Raises:
        ConfigurationError: there is no such pipeline or launcher.
        IncompatibleCheckpointError: the archive of its code is missing or was changed.
        ConflictError: somebody else deployed or stopped it meanwhile.
        ControlUnavailableError: the registry does not answer.
        StackError: the new generation ended or does not start; says why.
    """
    known_to = settings if runs is None else settings.with_code(runs.path)
    if name not in jobs.names(known_to):
        known = ", ".join(jobs.names(known_to)) or "none; see DELTAWORKS_PROJECT"
        raise ConfigurationError(f"There is no pipeline {name!r} in jobs/.", hint=f"pipelines here: {known}")
    options = options or DeployOptions()
    launchers(settings, options.launcher).check()
    home.make(settings)
    if runs is None and settings.run_from == "archive":
        runs = code.archive(settings)
    registry = Registry.of(settings)
    paths = PipelinePaths.of(settings, name)
    with _turn(registry, name, report):
        deployment = registry.deployment_of_request(name, request_id) if request_id is not None else None
        if deployment is None:
            if expected_generation is not None:
                _require_to_restart(settings, registry, name, expected_generation, launchers)
            paths.stop.unlink(missing_ok=True)
            deployment = registry.allocate(
                name,
                options,
                above=fence.read(paths.fence),
                request_id=request_id,
                requested_by=requested_by,
                log=str(settings.logs / f"{name}.log"),
                healing=expected_generation is not None,
                code=until_launch.code if until_launch is not None else None if runs is None else runs.digest,
            )
            report(f"generation {deployment.generation}")
        later = None if until_launch is None else runs
        work = _Deploying(settings, registry, deployment, later, launchers, before_launch, report, drain_s, launch_s)
        return work.go_on() if deployment.state == "launching" else work.as_it_went()


def stop(
    settings: Settings,
    name: str,
    *,
    requested_by: str,
    timeout_s: float = 60.0,
    report: Report = lambda _: None,
    launchers: Launchers = launcher,
) -> Observation:
    """Drains the pipeline: it finishes its batch, refreshes its snapshots and ends. It is not restarted.

    This works without the registry, which then learns of the stop from `reconcile` or the next `stop`.
    """
    paths = PipelinePaths.of(settings, name)
    registry: Registry | None = Registry.of(settings)
    with ExitStack() as turn:
        try:
            assert registry is not None
            registry.desire(name, "stopped")  # first, so that nobody restarts what ends here
            paths.stop.unlink(missing_ok=True)
            turn.enter_context(_turn(registry, name, report))
        except ControlUnavailableError as error:
            report(error.message)
            if paths.root.is_dir():
                paths.stop.write_text(requested_by)
            registry = None
        ended = end_drivers(
            settings,
            name,
            keep=None,
            by=f"stopped by {requested_by}",
            registry=registry,
            report=report,
            timeout_s=timeout_s,
            launchers=launchers,
        )
        report(_how_they_went([driver.drained for driver in ended]))
        settings.metrics_target(name).unlink(missing_ok=True)  # of a driver that was killed: nobody misses it now
        latest = max((driver.generation for driver in ended), default=fence.read(paths.fence))
        with suppress(ControlUnavailableError):
            if registry is not None:
                latest = max(latest, _latest(registry, name))
                for driver in ended:
                    _settle(settings, registry, name, driver.generation, "stopped")
    return observe(settings, name, latest, launchers=launchers)


def restart(
    settings: Settings,
    name: str,
    *,
    requested_by: str,
    report: Report = lambda _: None,
    launchers: Launchers = launcher,
) -> Deployment:
    """Deploys a pipeline again with the options and code of its last deployment.

    Raises:
        ConfigurationError: it was never deployed.
        IncompatibleCheckpointError: the archive of its code is missing or was changed.
    """
    last = next(iter(Registry.of(settings).deployments(name, limit=1)), None)
    if last is None:
        raise ConfigurationError(f"Pipeline {name!r} was never deployed.", hint=f"deltaworks deploy {name}")
    runs = code_of(settings, last)
    return deploy(
        settings, name, last.options, runs=runs, requested_by=requested_by, report=report, launchers=launchers
    )


def launch_alone(
    settings: Settings, name: str, generation: int, like: Deployment, *, by: str, launchers: Launchers = launcher
) -> None:
    """Starts a driver of a new generation without the registry, with the options and code of a deployment.

    It ends the previous drivers and what is left of them. It does not wait for the new one.

    Raises:
        IncompatibleCheckpointError: the archive of its code is missing or was changed.
        StackError: the driver cannot be started.
    """
    runs = code_of(settings, like)
    end_drivers(
        settings,
        name,
        keep=generation,
        by=by,
        registry=None,
        report=lambda _: None,
        timeout_s=0.0,
        launchers=launchers,
    )
    _clear(PipelinePaths.of(settings, name), generation)
    _submit(settings, name, generation, like.options, runs, launchers(settings, like.options.launcher))


def _submit(
    settings: Settings, name: str, generation: int, options: DeployOptions, runs: Code | None, start: Launcher
) -> ExternalId:
    if runs is not None:
        retention.note(PipelinePaths.of(settings, name), generation, runs.digest)
    return start.submit(
        DriverSpec(
            pipeline=name,
            generation=generation,
            options=options,
            log=settings.logs / f"{name}.log",
            code=None if runs is None else runs.path,
        )
    )


def _clear(paths: PipelinePaths, generation: int) -> None:
    """Removes the files of a manual run that had the same number."""
    for left in (paths.outcome(generation), paths.drain(generation)):
        left.unlink(missing_ok=True)


def code_of(settings: Settings, deployment: Deployment | None) -> Code | None:
    """The code of a deployment, for another deployment; None if it has no archive.

    Raises:
        IncompatibleCheckpointError: the archive is missing or was changed.
    """
    return None if deployment is None or deployment.code is None else code.find(settings, deployment.code)


@dataclass(frozen=True)
class _Deploying:
    """A deployment in progress, the only one of its pipeline."""

    settings: Settings
    registry: Registry
    deployment: Deployment
    later: Code | None
    """The code, if the deployment has another one until its launch."""
    launchers: Launchers
    before_launch: Callable[[int], None]
    report: Report
    drain_s: float
    launch_s: float

    def go_on(self) -> Deployment:
        """Does the remaining steps: ends the previous generation, launches, waits."""
        name, generation = self.deployment.pipeline, self.deployment.generation
        if _latest(self.registry, name) > generation:
            return self._end("superseded", None, "a newer generation was deployed before this one was launched")
        start = self.launchers(self.settings, self.deployment.options.launcher)
        driver = self.deployment.external_id or start.drivers(name).get(generation)
        if driver is None:
            runs = self.later or code_of(self.settings, self.deployment)
            self._end_predecessors()
            _clear(PipelinePaths.of(self.settings, name), generation)
            try:
                self.before_launch(generation)
            except Exception as error:
                self._end("failed", None, f"failed before its launch: {error}")
                raise
            if self.later is not None:
                self.registry.takes_code(name, generation, self.later.digest)
            if runs is not None:
                for line in code.other_versions(runs):
                    self.report(f"changed since its code was first deployed: {line}")
            driver = _submit(self.settings, name, generation, self.deployment.options, runs, start)
        if self.deployment.launched_at is None:
            self.registry.launched(name, generation, driver)
        return self._wait(start)

    def as_it_went(self) -> Deployment:
        """The earlier answer to the same request."""
        if self.deployment.state == "failed":
            raise self._failure(self.deployment.reason or "it failed", [])
        return self.deployment

    def _end_predecessors(self) -> None:
        name, generation = self.deployment.pipeline, self.deployment.generation
        ended = end_drivers(
            self.settings,
            name,
            keep=generation,
            by=f"generation {generation} replaces it",
            registry=self.registry,
            report=self.report,
            timeout_s=self.drain_s,
            launchers=self.launchers,
        )
        for driver in ended:
            _settle(self.settings, self.registry, name, driver.generation, "superseded")

    def _wait(self, start: Launcher) -> Deployment:
        name, generation = self.deployment.pipeline, self.deployment.generation
        begun = clock.ticks_s()
        while True:
            seen = observe(self.settings, name, generation, launch_timeout_s=self.launch_s, launchers=self.launchers)
            match seen.state:
                case "running" | "draining":
                    self.registry.running(name, generation)
                    retention.tidy(self.settings)
                    self.report(f"generation {generation} runs")
                    return self._again()
                case "launching" | "unknown":
                    self.report(f"generation {generation} is starting, {clock.ticks_s() - begun:.0f} s")
                    self._require_wanted()
                case "stopped" | "superseded":
                    return self._end(seen.state, seen.exit_code, seen.reason)
                case "failed" | "dead" | "stalled":
                    driver = self._again().external_id
                    if driver is not None:
                        start.kill(driver)  # what is left of it
                    self._end("failed", seen.exit_code, seen.reason)
                    raise self._failure(seen.reason or seen.state, seen.log_lines)
            time.sleep(_POLL_S)

    def _require_wanted(self) -> None:
        record = self.registry.pipeline(self.deployment.pipeline)
        if record is not None and record.desired == "stopped":
            raise ConflictError(
                f"Pipeline {record.name!r} was stopped while generation {self.deployment.generation} was starting.",
                hint=f"deltaworks deploy {record.name}",
            )

    def _end(self, state: DeploymentState, exit_code: int | None, reason: str | None) -> Deployment:
        self.registry.ended(
            self.deployment.pipeline, self.deployment.generation, state, exit_code=exit_code, reason=reason
        )
        return self._again()

    def _again(self) -> Deployment:
        now = self.registry.deployment(self.deployment.pipeline, self.deployment.generation)
        return now or self.deployment

    def _failure(self, reason: str, log_lines: list[str]) -> StackError:
        who = f"Pipeline {self.deployment.pipeline!r}, generation {self.deployment.generation},"
        what, _, todo = reason.partition("\n  Hint: ")
        return StackError(
            f"{who} did not start: {what.partition(chr(10))[0]}",
            log=log_lines,
            hint="; ".join(filter(None, (todo.partition("\n")[0], f"see the full log in {self.deployment.log}"))),
        )


@contextmanager
def _turn(registry: Registry, name: str, report: Report) -> Iterator[None]:
    if registry.being_deployed(name):
        report("waiting for another deployment of this pipeline")
    with registry.deploying(name):
        yield


def _require_to_restart(settings: Settings, registry: Registry, name: str, expected: int, launchers: Launchers) -> None:
    record = registry.pipeline(name)
    current = record.generation if record else 0
    if current != expected:
        raise ConflictError(
            f"Generation {expected} of pipeline {name!r} is no longer the latest: {current} is.",
            hint="nothing to do: it was deployed meanwhile",
        )
    if record is not None and record.desired == "stopped":
        raise ConflictError(f"Pipeline {name!r} was stopped meanwhile.", hint=f"deltaworks deploy {name}")
    seen = observe(settings, name, expected, launchers=launchers)
    if seen.state in ALIVE:
        raise ConflictError(
            f"Generation {expected} of pipeline {name!r} is {seen.state}.", hint="nothing to do: it came back"
        )


def _settle(settings: Settings, registry: Registry, name: str, generation: int, state: DeploymentState) -> None:
    word = outcome.read(PipelinePaths.of(settings, name).outcome(generation))
    registry.ended(
        name, generation, state, exit_code=word.exit_code if word else None, reason=word.reason if word else None
    )


def _latest(registry: Registry, name: str) -> int:
    record = registry.pipeline(name)
    return record.generation if record else 0


def _how_they_went(drained: list[bool]) -> str:
    if not drained:
        return "was not running"
    return "drained" if all(drained) else "killed: it did not drain in time"


def take_over(settings: Settings, name: str) -> lineage.Claim:
    """Transfers a pipeline to this home from another home on this Kafka that no longer exists.

    A driver of the other home ends at its next batch and is refused from then on.

    Raises:
        KafkaReadError, KafkaWriteError: the broker does not answer.
        FencedError: another driver starts at the same moment.
    """
    paths, bootstrap = PipelinePaths.of(settings, name), settings.cluster_of(name)
    control_topic.prepare(bootstrap, name, ())
    stored = checkpoint.stored_plan(paths.current.plan)
    mine = lineage.new_lineage() if stored is None else stored.lineage
    return lineage.claim(
        bootstrap,
        name,
        mine,
        lineage.new_incarnation(),
        generation=fence.read(paths.fence),
        home=str(settings.home),
        take_over=True,
    )
