"""The check of a pipeline's production tables, scheduled or on request; it keeps the verdicts."""

from __future__ import annotations

from deltaworks import clock
from deltaworks.catalogue.table import refresh_on_the_way
from deltaworks.control import batches, jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.sandbox import Limits
from deltaworks.lakehouse.schema import TableSchema, plan_schemas
from deltaworks.quality import results, suites
from deltaworks.quality.gate import judge
from deltaworks.quality.progress import Progress
from deltaworks.quality.verdict import Verdict
from deltaworks.settings import Settings


def is_there(settings: Settings, name: str) -> bool:
    """Whether the pipeline has tables; it creates all of them before its first batch."""
    return any((settings.tables / schema.name / layout.LOG_FOLDER).is_dir() for schema in _schemas(settings, name))


def check(settings: Settings, name: str, *, run_id: str, samples: int = 5, restricted: bool = True) -> list[Verdict]:
    """Checks the current tables, even while the stream runs, and adds the verdicts to `quality_results`.

    Then it brings the table `catalog` up to date.

    Args:
        settings: the settings, for the location of the tables.
        name: name of the pipeline.
        run_id: id under which the verdicts are kept.
        samples: maximum number of rows that a verdict shows.
        restricted: rules in SQL see only the tables, within limits of memory and time.

    Raises:
        ConfigurationError: the pipeline does not exist or has no suite.
        TransientError: other writers kept winning on the table of verdicts.
    """
    schemas = _schemas(settings, name)
    suite = suites.load(settings, name)
    newest = batches.last(PipelinePaths.of(settings, name).batches)
    last_batch = None if newest is None else newest.batch
    limits = Limits.of(settings, restricted=restricted)
    verdicts = judge(
        settings.tables,
        schemas=schemas,
        suites=suite,
        last_batch=last_batch,
        progress=Progress.of(settings, name),
        samples=samples,
        limits=limits,
    )
    results.append(settings.tables, run_id, name, verdicts, clock.utc_now())
    refresh_on_the_way(settings)
    return verdicts


def _schemas(settings: Settings, name: str) -> tuple[TableSchema, ...]:
    pipeline = jobs.load(settings, name)
    return plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table)
