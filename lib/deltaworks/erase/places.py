"""Where a home and an object store may have a person's data, beside state and tables: files of text, and what only a
search can tell."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from deltaworks.control import topics
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.erase import texts
from deltaworks.errors import ConfigurationError
from deltaworks.files import contents, walk
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from deltaworks.topology.persons import Person


def texts_of(settings: Settings, paths: PipelinePaths) -> Iterator[Path]:
    """Logs, and documents that tell what went wrong. What the stream relies on has offsets and names, nobody's data."""
    folders = (settings.logs, settings.airflow / "logs", paths.root / "outcomes", paths.commands)
    return (file for folder in folders for file in _files(folder) if texts.is_text(file))


def remaining(settings: Settings, paths: PipelinePaths, person: Person) -> list[str]:
    """Files that still name the person; those of tables were searched when they were rewritten."""
    others = {
        settings.kafka,
        settings.postgres,
        settings.jars,
        settings.archives,
        settings.local_tables,
        settings.pipelines,
    }
    found = (file for file in (*_files(paths.root), *_files(settings.home, others)) if texts.names(file, person))
    lasting = [file for file, _ in walk(paths.lasting)] if isinstance(paths.lasting, ObjectPath) else []
    objects = (file for file, data in zip(lasting, contents(lasting), strict=True) if texts.has(data, person))
    return [shown(settings, file) for file in (*found, *objects)]


def beyond_reach(settings: Settings, paths: PipelinePaths) -> Iterator[str]:
    """Where the data may be and nobody can look from here: copies that a bucket keeps, other machines."""
    lasting = {place.bucket: place for place in (settings.tables, paths.lasting) if isinstance(place, ObjectPath)}
    for name, place in lasting.items():
        try:
            if not place.store.keeps_versions():
                continue
            which = "keeps"
        except ConfigurationError:
            which = "may keep"
        yield f"bucket {name}, which {which} earlier versions of objects: let it expire noncurrent versions"
    if isinstance(paths.lasting, ObjectPath):
        yield f"other machines that have run {paths.root.name}: local stores and logs; delete their homes"


def shown(settings: Settings, file: Path) -> str:
    """A file as a place."""
    if isinstance(file, ObjectPath):
        return f"object {file}"
    return f"file {file.relative_to(settings.home)}"


def _files(root: Path, without: Collection[Path] = ()) -> Iterator[Path]:
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if Path(folder, name) not in without)
        yield from (file for name in sorted(names) if (file := Path(folder, name)).is_file() and not file.is_symlink())


def topics_of(pipeline: Pipeline) -> list[str]:
    """Topics that the pipeline reads and writes: they keep their records, whatever happens here."""
    plan = pipeline.plan()
    read = {*plan.source_topics, *plan.global_topics}
    patterns = {f"topics like {pattern}" for pattern in plan.source_patterns}
    written = set(topics.output_topics(pipeline, plan))
    return [f"topic {name}" for name in sorted(read | written)] + sorted(patterns)
