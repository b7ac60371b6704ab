"""Where a home may have a person's data, beside state and tables: files of text, and what only a search can tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from deltaworks.control import topics
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.erase import texts
from deltaworks.settings import Settings
from deltaworks.topology.persons import Person


def files_of(settings: Settings, paths: PipelinePaths) -> Iterator[Path]:
    """The files beside the tables that can have data of a pipeline: its folder, logs, and what Airflow writes."""
    skipped = {settings.kafka, settings.postgres, settings.jars, settings.archives, settings.tables, settings.pipelines}
    for root in (paths.root, settings.home):
        for folder, inner, names in os.walk(root):
            here = Path(folder)
            inner[:] = sorted(name for name in inner if root == paths.root or here / name not in skipped)
            yield from (here / name for name in sorted(names) if (here / name).is_file())


def texts_of(settings: Settings, paths: PipelinePaths) -> Iterator[Path]:
    """Those that can be changed: text that is not a source of truth of the stream."""
    kept = {paths.lease, paths.fence, paths.pointer, paths.erasures / "salt"}
    return (file for file in files_of(settings, paths) if file not in kept and texts.is_text(file))


def remaining(settings: Settings, paths: PipelinePaths, person: Person) -> list[str]:
    """Files that still name the person; those of tables were searched when they were rewritten."""
    found = [file for file in files_of(settings, paths) if texts.names(file, person)]
    return [f"file {file.relative_to(settings.home)}" for file in found]


def topics_of(pipeline: Pipeline) -> list[str]:
    """Topics that the pipeline reads and writes: they keep their records, whatever happens here."""
    plan = pipeline.plan()
    read = {*plan.source_topics, *plan.global_topics}
    patterns = {f"topics like {pattern}" for pattern in plan.source_patterns}
    written = set(topics.output_topics(pipeline, plan))
    return [f"topic {name}" for name in sorted(read | written)] + sorted(patterns)
