"""The graph of who reads what: the jobs behind one of them, in the order in which they would have to run again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Job:
    """A pipeline or a batch job: the names of the tables and topics that it reads and writes."""

    kind: Literal["pipeline", "batch job"]
    name: str
    reads_tables: frozenset[str] = NONE
    reads_topics: frozenset[str] = NONE
    writes_tables: frozenset[str] = NONE
    writes_topics: frozenset[str] = NONE
    corrections: str | None = None
    """The one of these topics in which its replays tell what they have changed."""
    waits_for: frozenset[str] = NONE
    """The tables for whose events Airflow runs it."""
    names_topics: bool = False
    """Whether a function of its author names topics that it writes."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A job that reads what others have written before it."""

    job: Job
    tables: tuple[str, ...]
    """The tables that it reads and that change; none: nothing changes for it."""
    topics: tuple[str, ...]
    """The topics that it reads and that a job before it writes."""
    corrected: bool
    """Whether it reads the corrections of the replay, or what comes of them."""


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """What is behind a job."""

    readers: tuple[Reader, ...]
    """Each after those that it reads from, as far as there is no cycle."""
    cycles: tuple[tuple[Job, ...], ...]
    """Jobs of which each reads from the one before; the first is the last, too."""


def behind(root: Job, tables: Collection[str], jobs: Sequence[Job]) -> Cascade:
    """The jobs that read, directly or not, what a job writes.

    Args:
        root: the job.
        tables: those of its tables that change; its topics count, too.
        jobs: all jobs there are; the root may be among them.
    """
    root = replace(root, writes_tables=frozenset(tables))
    known = {(job.kind, job.name): job for job in jobs} | {(root.kind, root.name): root}
    everyone = [known[name] for name in sorted(known)]
    done, cycles = list[Job](), list[tuple[Job, ...]]()

    def visit(job: Job, path: tuple[Job, ...]) -> None:
        if job in path:
            cycles.append((*path[path.index(job) :], job))
        elif job not in done:
            for reader in everyone:
                if job.writes_tables & reader.reads_tables or job.writes_topics & reader.reads_topics:
                    visit(reader, (*path, job))
            done.append(job)

    visit(root, ())
    changed, sent = set(root.writes_tables), set(root.writes_topics)
    told_topics, told_tables = {root.corrections}, set[str]()
    readers = []
    for job in reversed(done[:-1]):
        read = job.reads_tables & changed
        topics, corrected = (
            job.reads_topics & sent,
            bool(job.reads_topics & told_topics or job.reads_tables & told_tables),
        )
        readers.append(Reader(job=job, tables=tuple(sorted(read)), topics=tuple(sorted(topics)), corrected=corrected))
        changed |= job.writes_tables if read else set()
        sent |= job.writes_topics
        told_topics |= job.writes_topics if corrected else set()
        told_tables |= job.writes_tables if corrected else set()
    return Cascade(readers=tuple(readers), cycles=tuple(cycles))
