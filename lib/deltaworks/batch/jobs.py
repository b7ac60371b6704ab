"""The batch jobs of a project: every file in `jobs/batch/` that defines `job`."""

from __future__ import annotations

from deltaworks.batch.job import BatchJob
from deltaworks.control.jobs import defining, imported
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

FOLDER = "batch"
"""Below `jobs/`."""


def names(settings: Settings) -> list[str]:
    """The names of all batch jobs, found by text, so that files that cannot be imported are included."""
    return defining("job", settings.jobs / FOLDER)


def load(settings: Settings, name: str) -> BatchJob:
    """The object `job` of `jobs/batch/<name>.py`.

    Raises:
        ConfigurationError: the file does not exist, fails, or defines no job of this name.
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
    return job
