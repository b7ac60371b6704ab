"""What a replay means for those who read what it publishes, for people: before it is approved, and in its report."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deltaworks.cascade import graph, project
from deltaworks.cascade.graph import Cascade, Job, Reader
from deltaworks.replay.model import Narrowed, ReplayPlan, ReplayState, range_of
from deltaworks.settings import Settings

OUTSIDE = "Readers outside of the project (SQL, reports) are unknown; they see the new rows once these are published."


@dataclass(frozen=True, kw_only=True)
class Readers:
    """Who reads what a replay publishes."""

    root: Job
    found: Cascade
    days: str
    """Which days change, for people."""
    again: bool
    """Whether the batch jobs are computed again with the replay."""
    unknown: tuple[str, ...]
    """Who may read it, for people."""

    @property
    def batch_jobs(self) -> list[str]:
        """The names of the batch jobs for which rows change, in order."""
        return [each.job.name for each in self.found.readers if each.job.kind == "batch job" and each.tables]

    @property
    def lines(self) -> list[str]:
        """One line for each reader, in order, for each cycle, and for whoever is unknown."""
        named = [job for job in (self.root, *(each.job for each in self.found.readers)) if job.names_topics]
        return [
            *(self._line(each) for each in self.found.readers),
            *(f"a cycle: {' -> '.join(map(str, cycle))}" for cycle in self.found.cycles),
            *(f"unknown: {job} writes topics that a function names" for job in named),
            *(f"unknown: {each}" for each in self.unknown),
            OUTSIDE,
        ]

    def _line(self, reader: Reader) -> str:
        job, read = reader.job, ", ".join((*reader.tables, *(f"topic {topic}" for topic in reader.topics)))
        if not reader.tables:
            if reader.corrected:
                via = f"reads {read}" if read else "reads tables of the pipelines before it"
                return f"{job} {via}: it changes as the corrections arrive that the replay sends"
            if read:
                return f"{job} reads {read}: a replay sends no results to Kafka, so nothing changes for it"
            return f"{job} reads tables of the pipelines before it: nothing changes for it"
        if self.again:
            then = f"computed again with this replay, {self.days}"
        elif job.waits_for & set(reader.tables):
            then = f"Airflow computes it again once it is published, {self.days}"
        else:
            then = f"not computed again by itself: --cascade, or deltaworks batch {job.name}, {self.days}"
        return f"{job} reads {read}: {then}"


def readers(settings: Settings, plan: ReplayPlan, state: ReplayState | None = None) -> Readers:
    """Who reads what a replay publishes: of the plan, or of what is known of it by now.

    Args:
        settings: name the project.
        plan: of the replay.
        state: how far it is; None: it is only planned.
    """
    request, state = plan.request, state or ReplayState()
    whole = Narrowed(
        tables=plan.tables,
        from_ms=request.from_ms if state.from_ms is None else state.from_ms,
        to_ms=request.to_ms if state.to_ms is None else state.to_ms,
    )
    chosen = state.narrowed or whole
    known = project.read(settings)
    missing = Job(kind="pipeline", name=request.pipeline)
    root = next((job for job in known.jobs if (job.kind, job.name) == ("pipeline", request.pipeline)), missing)
    if request.hand_over:
        root = replace(root, corrections=None)  # a hand-over is not told
    mentions = project.naming(settings, chosen.tables, known.jobs)
    return Readers(
        root=root,
        found=graph.behind(root, chosen.tables, known.jobs),
        days="all of its days" if request.hand_over else f"days {range_of(chosen.from_ms, chosen.to_ms)} (exclusive)",
        again=request.cascade,
        unknown=(*known.unknown, *(f"{file} names {names}" for file, names in mentions)),
    )
