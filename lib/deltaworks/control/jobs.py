"""The pipelines of a project: every file in `jobs/` that defines `pipeline`.

A process that runs from an archive of the code sees the pipelines of the archive.
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from deltaworks.errors import ConfigurationError, DeltaworksError
from deltaworks.kafka.schemas_of_settings import FOLDER, SchemasOfSettings
from deltaworks.names import MODULE
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.dsl.pipeline import Pipeline


def names(settings: Settings) -> list[str]:
    """The names of all pipelines, found by text, so that files that cannot be imported are included."""
    return defining("pipeline", settings.jobs)


def defining(variable: str, folder: Path) -> list[str]:
    """The names of the files of a folder that define a variable, found by text."""
    defines = re.compile(rf"^{variable}\b[^=\n]*=", re.M)
    files = (path for path in folder.glob("*.py") if path.is_file())  # an editor's lock is a link to nothing
    return sorted(path.stem for path in files if defines.search(path.read_text(errors="replace")))


def names_with(settings: Settings, folder: str) -> list[str]:
    """The pipelines that have a module in a folder of `jobs/`, such as `sample_data`."""
    return [name for name in names(settings) if (settings.jobs / folder / f"{name}.py").is_file()]


def with_sample_data(settings: Settings) -> list[str]:
    """The pipelines that have sample data and can run here: without a schema registry, those that need one cannot."""
    found = names_with(settings, "sample_data")
    if "url" in settings.values.table("schema_registry"):
        return found
    return [name for name in found if not needs_registry(load(settings, name))]


def needs_registry(pipeline: Pipeline) -> bool:
    """Whether records of the pipeline name their schemas."""
    from deltaworks.topology.registered import uses

    return bool(uses(pipeline.plan()))


def load(settings: Settings, name: str) -> Pipeline:
    """The object `pipeline` of `jobs/<name>.py`.

    Raises:
        ConfigurationError: the file does not exist, fails, or defines no pipeline of this name.
    """
    from deltaworks.dsl.pipeline import Pipeline  # naming pipelines needs no operators

    module = imported(settings, name)
    pipeline = getattr(module, "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        raise ConfigurationError(
            f"{module.__file__} defines no pipeline.", hint="pipeline = Pipeline(name=..., topology=...)"
        )
    if pipeline.name != name:
        raise ConfigurationError(
            f"{module.__file__} defines a pipeline named {pipeline.name!r}; its name must be that of the file.",
            hint=f'Pipeline(name="{name}", ...), or rename the file',
        )
    return replace(pipeline, schemas=schemas_of(settings, name))


def schemas_of(settings: Settings, name: str) -> SchemasOfSettings:
    """The schemas of a pipeline's records."""
    return SchemasOfSettings(settings.values.table("schema_registry"), settings.lasting_pipeline(name) / FOLDER)


def imported(settings: Settings, name: str) -> ModuleType:
    """Like `load_module`; an error of the module names the line of its author.

    Raises:
        ConfigurationError: the file does not exist, or it fails.
    """
    from deltaworks.dsl import failures

    try:
        return load_module(settings, name)
    except DeltaworksError:
        raise
    except Exception as error:
        failed = failures.problem(error)
        text = f"jobs/{name.replace('.', '/')}.py fails when it is imported: {failed.what}\n  at {failed.where}"
        raise ConfigurationError(text, hint=failed.hint) from error


def load_module(settings: Settings, name: str) -> ModuleType:
    """A module of `jobs/`, such as `orders` or `sample_data.orders`."""
    parts = [MODULE.checked(part, settings.jobs) for part in name.split(".")]
    path = settings.jobs.joinpath(*parts[:-1], f"{parts[-1]}.py")
    if not path.is_file():
        raise ConfigurationError(
            f"There is no file {path}.",
            hint=f"pipelines here: {', '.join(names(settings)) or 'none; see DELTAWORKS_PROJECT'}",
        )
    if (folder := str(settings.jobs.parent)) not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(f"jobs.{name}")
