"""What the pipelines and batch jobs of a project read and write, and which other files name their tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from deltaworks.batch import jobs as batch_jobs
from deltaworks.cascade.graph import Job
from deltaworks.control import jobs as pipelines
from deltaworks.control.topics import output_topics
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from deltaworks.topology.checks import table_names
from deltaworks.topology.nodes.sinks import ExtractedTopicSink
from deltaworks.topology.plan import Plan

_OF_A_PIPELINE = ("quality", "recomputed", "sample_data")
"""Folders of `jobs/` with files for a pipeline, which belong to it."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """The jobs of a project."""

    jobs: tuple[Job, ...]
    unknown: tuple[str, ...]
    """Files of `jobs/` that cannot be loaded, and why, for people."""


def read(settings: Settings) -> Project:
    """Loads every pipeline and batch job; what cannot be loaded is told, and hinders nobody."""
    plans: dict[str, tuple[Pipeline, Plan]] = {}
    found, unknown = list[Job](), list[str]()
    for name in pipelines.names(settings):
        try:
            pipeline = pipelines.load(settings, name)
            plans[name] = (pipeline, pipeline.plan())
        except DeltaworksError as error:
            unknown.append(_unknown(f"jobs/{name}.py", error))
    topics = {topic for pipeline, plan in plans.values() for topic in output_topics(pipeline, plan)}
    found += [_of_pipeline(pipeline, plan, topics) for pipeline, plan in plans.values()]
    for name in batch_jobs.names(settings):
        try:
            job = batch_jobs.load(settings, name)
        except DeltaworksError as error:
            unknown.append(_unknown(f"jobs/{batch_jobs.FOLDER}/{name}.py", error))
            continue
        reads, waits_for = frozenset(job.reads), frozenset(job.waits_for)
        of_job = Job(
            kind="batch job", name=name, reads_tables=reads, writes_tables=frozenset({name}), waits_for=waits_for
        )
        found.append(of_job)
    return Project(jobs=tuple(found), unknown=tuple(unknown))


def naming(settings: Settings, tables: Collection[str], known: Collection[Job]) -> list[tuple[str, str]]:
    """The files of `jobs/` and `dags/` in which a text contains the name of a table: they may read it.

    Args:
        settings: name the project.
        tables: the names.
        known: jobs whose own files are left out.

    Returns:
        The file, relative to the project, and the names that are in it.
    """
    if not tables:
        return []
    folders = {"pipeline": settings.jobs, "batch job": settings.jobs / batch_jobs.FOLDER}
    own = {folders[job.kind] / f"{job.name}.py" for job in known}
    word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(tables)))})\b")
    found = []
    for folder, file in _files(settings):
        names = {name for text in _texts(file) for name in word.findall(text)} if file not in own else set()
        if names:
            found.append((f"{folder.name}/{file.relative_to(folder).as_posix()}", ", ".join(sorted(names))))
    return found


def _of_pipeline(pipeline: Pipeline, plan: Plan, topics: Collection[str]) -> Job:
    tables = {table for sink in plan.tables for table in table_names(sink)}
    return Job(
        kind="pipeline",
        name=pipeline.name,
        reads_topics=frozenset(filter(plan.uses, topics)),
        writes_tables=frozenset({*tables, *filter(None, [pipeline.dead_letters.table])}),
        writes_topics=frozenset(output_topics(pipeline, plan)),
        corrections=None if pipeline.corrections is None else pipeline.corrections.topic,
        names_topics=any(isinstance(node, ExtractedTopicSink) for node in plan.nodes),
    )


def _unknown(file: str, error: DeltaworksError) -> str:
    return f"{file} cannot be loaded, so what it reads is unknown: {error.message.splitlines()[0]}"


def _files(settings: Settings) -> Iterator[tuple[Path, Path]]:
    """Each file with its folder."""
    for folder in (settings.jobs, settings.project / "dags"):
        for file in sorted(folder.rglob("*.py")):
            if folder != settings.jobs or file.relative_to(folder).parts[0] not in _OF_A_PIPELINE:
                yield folder, file


def _texts(file: Path) -> Iterator[str]:
    """The strings in a file of Python, without those that only document it; none if it is not valid."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return
    documents = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
            yield node.value
