"""The batch jobs of a project: every file in `jobs/batch/` that defines `job`."""

from __future__ import annotations

from deltaworks.batch.job import BatchJob
from deltaworks.control import jobs as pipelines
from deltaworks.control.jobs import defining, imported
from deltaworks.errors import ConfigurationError
from deltaworks.names import hint_of
from deltaworks.settings import Settings
from deltaworks.topology.checks import table_names

FOLDER = "batch"
"""Below `jobs/`."""


def names(settings: Settings) -> list[str]:
    """The names of all batch jobs, found by text, so that files that cannot be imported are included."""
    return defining("job", settings.jobs / FOLDER)


def load(settings: Settings, name: str) -> BatchJob:
    """The object `job` of `jobs/batch/<name>.py`.

    Raises:
        ConfigurationError: the file does not exist, fails, or defines no job of this name; or the job reads a table
            that its pipelines do not write.
    """
    if not (settings.jobs / FOLDER / f"{name}.py").is_file():
        raise ConfigurationError(
            f"There is no batch job {name!r}.",
            hint=f"batch jobs in {settings.jobs / FOLDER}: {', '.join(names(settings)) or 'none'}",
        )
    module = imported(settings, f"{FOLDER}.{name}")
    job = getattr(module, "job", None)
    if not isinstance(job, BatchJob) or job.name != name:
        found = "no job" if not isinstance(job, BatchJob) else f"a job named {job.name!r}"
        raise ConfigurationError(f"{module.__file__} defines {found}.", hint=f'job = BatchJob(name="{name}", ...)')
    _check_tables(settings, job)
    return job


def _check_tables(settings: Settings, job: BatchJob) -> None:
    known: list[str] = []
    for each in job.pipelines:
        try:
            pipeline = pipelines.load(settings, each)
        except ConfigurationError as error:
            text = f"The batch job '{job.name}' reads tables of '{each}', which cannot be loaded: {error.message}"
            raise ConfigurationError(text, hint=error.hint) from error
        plan = pipeline.plan()
        known += [table for sink in plan.tables for table in table_names(sink)]
        known += [*pipeline.archives(plan).tables, *filter(None, [pipeline.dead_letters.table])]
    if job.name in known:
        raise ConfigurationError(
            f"The batch job '{job.name}' has the name of a table of {' and '.join(job.pipelines)}.",
            hint="give the job another name; a table belongs to what has made it",
        )
    for table in job.reads:
        if table not in known:
            raise ConfigurationError(
                f"The batch job '{job.name}' reads a table '{table}', which {' and '.join(job.pipelines)} do not have.",
                hint=hint_of(table, sorted(known), "parameters of compute are named like tables"),
            )
