"""What Airflow's OpenLineage provider hears of a task: the topics and Delta tables that it reads and writes.

| task | reads | writes |
|---|---|---|
| `supervise` of a stream | its topics | its topics and tables |
| `publish` of a replay | the topics of the stream | the tables that it has published |
| `compute` of a batch job | tables | its table |
| `check` | the tables of a pipeline | |

The provider calls an operator's `get_openlineage_facets_on_start` and `..._on_complete`. Nobody else does, so without
the provider none of this runs, and nothing of it is imported.

This is not `control.lineage`, which says which home owns a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deltaworks.batch import jobs as batch_jobs
from deltaworks.control import jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.settings import Settings


@dataclass(frozen=True)
class Data:
    """A dataset, named as OpenLineage names it."""

    namespace: str
    """`kafka://host:port`, or `file`."""
    name: str
    """The topic, or the folder of the table."""
    columns: tuple[tuple[str, str, str | None], ...] = ()
    """Name, type in Delta's notation, and meaning; empty for a topic."""


@dataclass(frozen=True)
class Flow:
    """What a task reads and writes."""

    inputs: tuple[Data, ...] = ()
    outputs: tuple[Data, ...] = ()

    def lineage(self) -> Any:
        """As the provider takes it; needs the provider."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        return OperatorLineage(inputs=list(map(_dataset, self.inputs)), outputs=list(map(_dataset, self.outputs)))


def of_stream(settings: Settings, name: str) -> Flow:
    """What a stream reads and writes."""
    pipeline = jobs.load(settings, name)
    sinks = [*pipeline.plan().sink_topics, *filter(None, [pipeline.dead_letters.topic])]
    tables = _tables(settings, pipeline)
    return Flow(_sources(settings, pipeline), (*_topics(settings, name, sinks), *tables.values()))


def of_publication(settings: Settings, name: str, run: str, tables: Iterable[str]) -> Flow:
    """What a replay has published; nothing is written before.

    Args:
        settings: name the home.
        name: the pipeline.
        run: id of the replay.
        tables: those that it can publish; a hand-over replaces all of them.
    """
    from deltaworks.lakehouse.publish import publication

    pipeline = jobs.load(settings, name)
    paths, known = PipelinePaths.of(settings, name), _tables(settings, pipeline)
    record = publication.read(paths.publications, run)
    published = record.tables if record is not None else tables if paths.handover(run).exists() else ()
    return Flow(_sources(settings, pipeline), tuple(known[table] for table in sorted(published)))


def of_batch(settings: Settings, name: str) -> Flow:
    """What a batch job reads and writes."""
    from deltaworks.batch.definition import definition

    job = batch_jobs.load(settings, name)
    known: dict[str, Data] = {}
    for pipeline in job.pipelines:
        known |= _tables(settings, jobs.load(settings, pipeline))
    return Flow(tuple(known[table] for table in job.reads), (_table(settings, definition(job)),))


def of_checks(settings: Settings, name: str) -> Flow:
    """What the checks of a pipeline read."""
    return Flow(tuple(_tables(settings, jobs.load(settings, name)).values()))


def _sources(settings: Settings, pipeline: Pipeline) -> tuple[Data, ...]:
    plan = pipeline.plan()
    return _topics(settings, pipeline.name, [*plan.source_topics, *plan.global_topics])


def _topics(settings: Settings, name: str, topics: Iterable[str]) -> tuple[Data, ...]:
    """Topics of the pipeline's Kafka, which the first of its addresses names."""
    address = settings.cluster_of(name).bootstrap.partition(",")[0]
    return tuple(Data(f"kafka://{address}", topic) for topic in dict.fromkeys(topics))


def _tables(settings: Settings, pipeline: Pipeline) -> dict[str, Data]:
    """The tables of a pipeline by name, with those of its dead letters and archives."""
    from deltaworks.lakehouse.described import Definition
    from deltaworks.lakehouse.schema import plan_schemas

    plan = pipeline.plan()
    schemas = plan_schemas(plan.tables, pipeline.dead_letters.table, pipeline.archives(plan).tables)
    return {schema.name: _table(settings, Definition.of(schema)) for schema in schemas}


def _table(settings: Settings, table: Any) -> Data:
    columns = tuple((column.name, column.type, column.meaning) for column in table.meaning.columns)
    return Data("file", str((settings.tables / table.name).absolute()), columns)


def _dataset(data: Data) -> Any:
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )

    fields = [
        SchemaDatasetFacetFields(name=name, type=type, description=meaning) for name, type, meaning in data.columns
    ]
    facets = {"schema": SchemaDatasetFacet(fields=fields)} if fields else {}
    return Dataset(namespace=data.namespace, name=data.name, facets=facets)
