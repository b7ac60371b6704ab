"""What `replay --code`, `--report` and `--fail-on` say about code before it is merged."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deltaworks.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    KafkaTopicError,
    TopologyError,
)
from deltaworks.files import replace_file
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.replay.model import Phase, ReplayState
    from deltaworks.replay.phases import ReplayRun

FAIL_ON = ("different", "limit", "incompatible")
_GOES_ON = "the stream can go on with its state"


@dataclass(frozen=True)
class Review:
    """What is asked about the code of a run."""

    code: str | None
    """A folder or git ref whose code is replayed; None: that of the project."""
    report: Path | None
    """Where to write what would change."""
    fail_on: Collection[str]
    """Of `FAIL_ON`."""

    @property
    def wanted(self) -> bool:
        return self.code is not None or self.report is not None or bool(self.fail_on)

    def require(self, until: Phase, **publishing: bool) -> None:
        """Checks the options before anything is done.

        Args:
            until: the last phase.
            publishing: options that only make sense where something is published -> whether they are given.

        Raises:
            ConfigurationError: options contradict each other.
        """
        from deltaworks.replay.model import PHASES

        if unknown := sorted(set(self.fail_on) - set(FAIL_ON)):
            raise ConfigurationError(
                f"--fail-on {', '.join(unknown)}: there is no such reason.", hint=", ".join(FAIL_ON)
            )
        given = [f"--{name.replace('_', '-')}" for name, is_given in publishing.items() if is_given]
        if self.code is not None and given:
            raise ConfigurationError(
                f"{', '.join(given)}: with --code, nothing is published and the run is removed.",
                hint=f"leave out {', '.join(given)}, or --code",
            )
        if self.wanted and PHASES.index(until) < PHASES.index("gate"):
            raise ConfigurationError(
                "--code, --report and --fail-on say what the gate has found, too, but --until ends before it.",
                hint="leave out --until",
            )
        if self.report is not None and not self.report.absolute().parent.is_dir():
            raise ConfigurationError(
                f"There is no folder {self.report.absolute().parent} for --report.", hint="make it first"
            )

    def is_first(self, settings: Settings, name: str) -> bool:
        """Whether the code is of a pipeline that has not run here yet; the report says so then.

        Raises:
            ConfigurationError: the code has no such pipeline.
        """
        from deltaworks.control import jobs
        from deltaworks.control.checkpoint import stored_plan
        from deltaworks.control.paths import PipelinePaths

        if self.code is None:
            return False
        jobs.load(settings, name)
        if stored_plan(PipelinePaths.of(settings, name).current.plan) is not None:
            return False
        if self.report is not None:
            replace_file(
                self.report.absolute(), f"## `{name}` has not run yet\n\nThere is nothing to replay.\n".encode()
            )
        return True

    def require_limit(self, run: ReplayRun) -> None:
        """Raises `ConfigurationError` if the pipeline has no limit to fail on."""
        if "limit" in self.fail_on and run.pipeline.reprocess is None:
            raise ConfigurationError(
                f"--fail-on limit: jobs/{run.pipeline.name}.py has no reprocess= with a limit.",
                hint="reprocess=Reprocess('@daily', limit=ChangeLimit(share=0.01)), or --fail-on different",
            )

    def judged(self, settings: Settings, run: ReplayRun, state: ReplayState, seconds: float) -> list[str]:
        """Writes the report; returns what the code fails on, one line each."""
        from deltaworks.cascade.readers import readers
        from deltaworks.replay.report import review

        fits = _fits(settings, run)
        if self.report is not None:
            read_by = readers(settings, run.plan, state).lines
            code = self.code or f"{settings.project.name}/jobs"
            text = review(
                run.paths, run.plan, state, code=code, fits=fits or _GOES_ON, seconds=seconds, readers=read_by
            )
            replace_file(self.report.absolute(), text.encode())
        return list(self._failures(run, fits))

    def _failures(self, run: ReplayRun, fits: str | None) -> Iterator[str]:
        from deltaworks.lakehouse.publish.decision import decide
        from deltaworks.replay.report import comparison_of

        comparison = comparison_of(run.paths)
        if "different" in self.fail_on and not comparison.equal:
            yield f"different: {comparison.differences:,} rows differ"
        if "limit" in self.fail_on and run.pipeline.reprocess is not None:
            decision = decide(run.pipeline.reprocess, comparison)
            if decision.answer == "ask":
                yield f"limit: {decision.why}"
        if "incompatible" in self.fail_on and fits is not None:
            yield f"incompatible: {fits}"


def _fits(settings: Settings, run: ReplayRun) -> str | None:
    """Why the stream could not go on with its state; None: it can."""
    from deltaworks.control import preflight

    try:
        preflight.fit(settings, run.pipeline, run.pipeline.plan())
    except (IncompatibleCheckpointError, TopologyError, KafkaTopicError, ConfigurationError) as error:
        return error.message
    return None
