"""Starts a pipeline over: its checkpoint, its tables and what it has written to Kafka are deleted.

For development, where an edit changes the topology and nobody needs the results of before. Only on the Kafka that the
home runs itself: elsewhere somebody may read them.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks import listeners
from deltaworks.control import fence, topics
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError
from deltaworks.files import remove_tree
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import own_topics
from deltaworks.lakehouse import catalog, cuts
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.settings import Settings


@dataclass(frozen=True)
class Leftovers:
    """What a pipeline has made, apart from its checkpoint."""

    tables: tuple[str, ...]
    topics: tuple[str, ...]
    """Those that it writes, and those that only deltaworks reads."""


def find(settings: Settings, pipeline: Pipeline) -> Leftovers:
    """What would be deleted; the tables are those that the pipeline has written, whatever its code says now.

    Raises:
        ConfigurationError: Kafka is not that of the home.
    """
    listeners.require_own_kafka(settings)
    if not listeners.is_own_kafka(settings):
        raise ConfigurationError(
            f"A pipeline starts over only on the Kafka of its home, not at {settings.bootstrap}.",
            hint="somebody may read there what it has written; use another name for the pipeline",
        )
    written = [*topics.output_topics(pipeline, pipeline.plan()), *own_topics(pipeline.name)]
    there = admin.partition_counts_of(admin.admin(settings.cluster_of(pipeline.name)))
    tables = [name for name in catalog.table_names(settings.tables) if _writer(settings, name) == pipeline.name]
    return Leftovers(tuple(tables), tuple(topic for topic in written if topic in there))


def start_over(settings: Settings, pipeline: Pipeline) -> Leftovers:
    """Deletes all of it; the next driver begins with empty stores at its start offsets.

    Raises:
        ConfigurationError: as in `find`.
        LeaseError: the pipeline runs.
    """
    found = find(settings, pipeline)
    paths = PipelinePaths.of(settings, pipeline.name)
    with Lease(paths.lease, pipeline.name, fence.read(paths.fence) + 1):
        # What another reader could take for results goes first, and last what says that there is anything to delete.
        admin.delete_topics(settings.cluster_of(pipeline.name), found.topics)
        for table in found.tables:
            remove_tree(settings.tables / table, strict=True)
        remove_tree(cuts.folder(settings.tables, pipeline.name))
        for root in {paths.lasting, paths.root}:
            for part in root.iterdir() if root.is_dir() else ():
                if part not in (paths.lease, paths.fence):
                    remove_tree(part, strict=True) if part.is_dir() else part.unlink()
    return found


def _writer(settings: Settings, table: str) -> str | None:
    """The pipeline that writes a table."""
    log = DeltaLog(settings.tables / table)
    log.load()
    return log.pipeline
